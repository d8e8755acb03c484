"""What a recipe may ask of credit and selection, and what it is refused."""

from typing import get_args

import pytest

from forethought.core.errors import RecipeError
from forethought.learning.advantage import AdvantageName
from forethought.learning.credit.settings import COMPARED_BY, CreditSettings
from forethought.learning.rl_settings import RLSettings


def learning(**sections):
    return RLSettings.model_validate({"steps": 1, "group_size": 4} | sections)


def test_one_advantage_an_attempt_is_the_default_where_turns_earn_nothing():
    settings = learning()
    assert settings.credit.chosen(turns_earn=settings.reward.turns_earn) == "outcome"
    assert learning().selection.keep == 0
    assert learning().selection.mask_void_turns is False


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        ({"discount": 0.9}, r"credit\.discount = 0\.9: auto has no use for it.*turn_rloo"),
        ({"type": "turn_rtg", "turn_weight": 2.0}, r"turn_weight = 2\.0: turn_rtg has no use"),
        ({"type": "gigpo", "form": "released"}, r"credit\.form = released: gigpo.*mt_grpo"),
        ({"type": "turn_rloo", "episode_over": "attempts"}, r"episode_over.*one of gigpo"),
        ({"type": "gigpo", "baseline": "all"}, r"credit\.baseline = all: gigpo has no use"),
        ({"type": "mt_grpo", "turn_weight": 2.0}, r"as printed.*discount"),
        ({"type": "mt_grpo", "form": "released", "discount": 0.5}, r"as released.*turn_weight"),
    ],
)
def test_a_setting_of_another_type_is_refused(credit, message):
    with pytest.raises(RecipeError, match=message):
        learning(credit=credit)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"credit": {"type": "turn_rloo", "advantage": {"kind": "dr_grpo"}}},
            r"turn_rloo.*rl\.credit\.advantage has no say",
        ),
        (
            {"credit": {"type": "gae", "advantage": {"epsilon": 0.1}}},
            r'type = "gae".*rl\.credit\.advantage has no say; remove that table',
        ),
        (
            {"credit": {"type": "gae"}, "selection": {"uninformative": "leave_out"}},
            r'rl\.selection\.uninformative = "leave_out": .*"gae".*the critic.*set it to "count"',
        ),
        (
            {"credit": {"type": "gigpo", "advantage": {"kind": "opo"}}},
            r'kind = "opo".*"gigpo" compares by one of grpo, dr_grpo',
        ),
        (
            {"credit": {"type": "merged", "advantage": {"kind": "gdpo"}}},
            r'kind = "gdpo".*"merged" compares by one of grpo, .*; use one of these, or .*outcome',
        ),
        (
            {"credit": {"type": "merged", "advantage": {"kind": "passk", "k": 2}}},
            r'kind = "passk".*"merged" compares by one of grpo, .*; use one of these, or .*outcome',
        ),
        (
            {"credit": {"type": "merged", "advantage": {"kind": "maxrl"}}},
            r'kind = "maxrl".*"merged" compares by one of grpo, .*; use one of these, or .*outcome',
        ),
        (
            {"credit": {"advantage": {"kind": "passk", "k": 4}}},
            r"rl\.credit\.advantage\.k = 4: 4 attempts",
        ),
        (
            {
                "credit": {"advantage": {"kind": "passk", "k": 3}},
                "selection": {"keep": 3, "keep_right": 1},
            },
            r"rl\.credit\.advantage\.k = 3: 3 attempts",
        ),
        (
            {"selection": {"keep": 4}},
            r"rl\.selection\.keep = 4: rl\.group_size = 4 leaves nothing to choose",
        ),
        ({"selection": {"keep": 3}}, r"selection\.keep = 3.*ask for 4"),
        ({"selection": {"keep_right": 1}}, r"selection\.keep_right = 1.*all attempts are kept"),
    ],
)
def test_what_does_not_fit_together_is_refused(sections, message):
    with pytest.raises(RecipeError, match=message):
        learning(**sections)


def test_the_discount_is_that_of_the_form_unless_it_is_set():
    found = {type: CreditSettings(type=type).decay for type in ("turn_rtg", "gigpo", "mt_grpo")}
    assert found == {"turn_rtg": 1.0, "gigpo": 0.95, "mt_grpo": 1.0}
    assert CreditSettings(type="gigpo", discount=1.0).decay == 1.0


def test_pass_at_fewer_than_the_whole_group_is_allowed():
    credit = learning(credit={"advantage": {"kind": "passk", "k": 3}}).credit
    assert credit.advantage.k == 3


def test_a_coefficient_that_would_follow_faster_than_rounds_come_is_refused():
    steered = {"kl": {"start": 0.1, "most": 1.0, "target": 0.01, "horizon": 15}}
    with pytest.raises(RecipeError, match=r"horizon = 15: a round has 16 attempts"):
        learning(problems=4, control=steered)
    steered["kl"]["horizon"] = 16
    assert learning(problems=4, control=steered).control.kl.horizon == 16


def test_a_selection_with_room_for_one_kind_alone_is_refused():
    with pytest.raises(RecipeError, match=r"keep_wrong = 0 leave room for one kind alone"):
        learning(selection={"keep": 2, "keep_right": 2, "keep_wrong": 0})


def test_merged_allows_every_comparison_of_one_number_an_attempt():
    allowed = set(get_args(AdvantageName)) - {"gdpo", "passk", "maxrl"}
    for kind in allowed:
        learning(credit={"type": "merged", "advantage": {"kind": kind}})
    assert set(COMPARED_BY["merged"]) == allowed
