"""What practice paid for besides right answers is said, and nothing where it paid for nothing."""

import pytest

from forethought.learning.rewards.settings import RewardSettings
from forethought.watch.finding import Kind
from forethought.watch.pay import BY_CALL, caution


def recipe(**reward):
    return {"rl": {"reward": RewardSettings(**reward).model_dump(mode="json")}}


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        ({}, "a wrong answer cost less for each call"),
        ({"variant": "paper"}, "each call that went well earned something"),
    ],
)
def test_a_reward_that_pays_for_calls_is_a_caution(reward, told):
    found = caution(recipe(**reward))
    assert found is not None
    assert found.kind is Kind.CAUTION
    assert told in found.text


@pytest.mark.parametrize(
    "reward",
    [{"tool_bonus": 0.0}, {"bonus_cap": 0}, {"variant": "outcome"}, {"variant": "released"}],
)
def test_a_reward_that_pays_for_no_call_is_not_spoken_of(reward):
    assert caution(recipe(**reward)) is None


def test_a_run_without_practice_is_not_spoken_of():
    assert caution({"seed": 1}) is None


def test_every_variant_that_pays_is_one():
    variants = RewardSettings.model_json_schema()["properties"]["variant"]["enum"]
    assert set(BY_CALL) <= set(variants)
