import pickle

import torch
from pydantic import ValidationError
from pytest import mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams

NAMES = sorted(LOSSES)


def read(recipe, logprobs_BT, streams):
    """The loss and its tally's figures."""
    result = objective(recipe)(logprobs_BT, streams, Denominators.count([streams.mask_BT]))
    return result.loss.item(), result.tally.read()


@mark.parametrize(
    ("name", "terms"),
    [
        ("grpo_t", (0.2, 0.2, 0.0, "token-mean")),
        ("grpo_tcr", (0.2, 0.28, 10.0, "token-mean")),
        ("grpo_scr", (3e-4, 4e-4, 0.0, "seq-mean-token-mean")),
    ],
)
def test_where_a_recipe_is_silent_an_algorithm_uses_its_own_terms(name, terms):
    generator = torch.Generator().manual_seed(0)
    old_BT = -torch.rand(64, 8, generator=generator, dtype=torch.float64)
    logprobs_BT = old_BT + torch.randn(64, 8, generator=generator, dtype=torch.float64)
    streams = Streams(
        mask_BT=torch.rand(64, 8, generator=generator) < 0.7,
        advantages_BT=torch.randn(64, 8, generator=generator, dtype=torch.float64),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    low, high, dual, aggregation = terms
    spoken = LossSettings(
        name=name, clip_low=low, clip_high=high, dual_clip=dual, aggregation=aggregation
    )
    found = read(LossSettings(name=name), logprobs_BT, streams)
    expected = read(spoken, logprobs_BT, streams)
    wider = read(LossSettings(name=name, clip_high=high * 1.5), logprobs_BT, streams)
    assert found == expected
    assert found[0] != wider[0]


@mark.parametrize(
    ("asked", "reason"),
    [
        ({"dual_clip": 0.5}, "must be above 1"),
        ({"kl_estimator": "k2"}, "no KL penalty to estimate"),
        ({"name": "grpo_scr", "dual_clip": 3.0}, "has no dual clip"),
        ({"name": "grpo_scr", "aggregation": "token-mean"}, "only for seq-mean-token-mean"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(asked, reason):
    with raises(RecipeError, match=reason):
        LossSettings.model_validate(asked)


@mark.parametrize("asked", [{"clip_low": 1.0}, {"clip_high": -0.1}, {"name": "ppo"}, {"beta": 0.1}])
def test_a_setting_out_of_range_or_unknown_is_refused(asked):
    with raises(ValidationError):
        LossSettings.model_validate(asked)


@mark.parametrize("name", NAMES)
def test_settings_survive_being_written_and_read_again(name):
    written = LossSettings(name=name, kl_coefficient=0.01).model_dump()
    assert LossSettings.model_validate(written) == LossSettings(name=name, kl_coefficient=0.01)


def test_an_objective_can_be_sent_to_another_process():
    old_BT = torch.zeros(1, 2)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    received = pickle.loads(pickle.dumps((objective(LossSettings()), streams)))
    result = received[0](old_BT, received[1], Denominators(tokens=2.0, sequences=1.0))
    assert result.loss.item() == -1.0
