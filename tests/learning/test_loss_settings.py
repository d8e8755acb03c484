import pickle

import torch
from pydantic import ValidationError
from pytest import mark, raises

from forethought.core.errors import RecipeError
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import APPLIES, OWN_AGGREGATIONS, LossSettings
from forethought.learning.streams import Denominators, Streams
from learning.loss_cases import ASKED, ESTIMATORS, NAMES, solve

OWN = {
    "grpo": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0},
    "grpo_t": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0},
    "grpo_tcr": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 10.0},
    "grpo_scr": {"clip_low": 3e-4, "clip_high": 4e-4},
    "grpo_turn": {"clip_low": 3e-4, "clip_high": 4e-4},
    "dapo": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 0.0},
    "dr_grpo": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0},
    "cispo": {"clip_high": 0.28},
    "reinforce": {"importance_cap": 2.0},
    "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
    "gmpo": {"clip_low": 0.4, "clip_high": 0.4},
    "dppo_tv": {"clip_low": 0.2, "clip_high": 0.2, "drift_coefficient": 1e-3},
}
"""What each loss does where a recipe is silent."""


def some_batch():
    generator = torch.Generator().manual_seed(0)

    def normal():
        return torch.randn(64, 8, generator=generator, dtype=torch.float64)

    old_BT = -normal().abs()
    streams = Streams(
        mask_BT=torch.rand(64, 8, generator=generator) < 0.7,
        advantages_BT=normal(),
        old_logprobs_BT=old_BT,
        weights_BT=torch.ones_like(old_BT),
    )
    return old_BT + 2.0 * normal(), streams


def seen(recipe):
    """The loss, its gradient and its figures."""
    loss, gradient_BT, tally = solve(recipe, *some_batch())
    return loss, gradient_BT.tolist(), tally.read()


@mark.parametrize("name", NAMES)
def test_where_a_recipe_is_silent_an_algorithm_uses_its_own_terms(name):
    spoken = LossSettings(name=name, aggregation=OWN_AGGREGATIONS[name], **OWN[name])
    assert seen(LossSettings(name=name)) == seen(spoken)


@mark.parametrize("key", APPLIES)
def test_a_key_changes_every_loss_that_has_it_and_is_refused_by_the_others(key):
    words, names = APPLIES[key]
    for name in NAMES:
        asked = {"name": name, key: ASKED[key]}
        if name in names:
            assert seen(LossSettings(**asked)) != seen(LossSettings(name=name))
        else:
            with raises(RecipeError, match=rf"loss.{key} = .*{name} has no {words}.*{names[0]}"):
                LossSettings.model_validate(asked)


def test_every_loss_has_a_function_an_aggregation_and_its_own_terms():
    assert set(LOSSES) == set(OWN_AGGREGATIONS) == set(OWN)
    assert set(ASKED) == set(APPLIES)


@mark.parametrize(
    ("asked", "reason"),
    [
        ({"dual_clip": 0.5}, "must be above 1"),
        ({"name": "grpo_scr", "dual_clip": 3.0}, "has no dual clip"),
        ({"name": "grpo_scr", "aggregation": "token-mean"}, "only for seq-mean-token-mean"),
        ({"name": "gmpo", "aggregation": "token-sum"}, "only for seq-mean-token-mean"),
        ({"name": "cispo", "cispo_cap_abs": 5.0, "clip_high": 4.0}, "keep one"),
    ],
)
def test_a_setting_that_does_not_apply_is_refused(asked, reason):
    with raises(RecipeError, match=reason):
        LossSettings.model_validate(asked)


@mark.parametrize(
    "asked",
    [
        {"clip_low": 1.0},
        {"clip_high": -0.1},
        {"name": "ppo"},
        {"beta": 0.1},
        {"name": "cispo", "cispo_cap_abs": 0.999},
        {"name": "reinforce", "importance_cap": 0.999},
        {"name": "sapo", "tau_positive": 0.0},
        {"name": "dppo_tv", "drift_coefficient": -0.1},
    ],
)
def test_a_setting_out_of_range_or_unknown_is_refused(asked):
    with raises(ValidationError):
        LossSettings.model_validate(asked)


def test_a_drift_coefficient_of_zero_is_no_penalty():
    _, gradient_BT, _ = solve(LossSettings(name="dppo_tv", drift_coefficient=0.0), *some_batch())
    logprobs_BT, streams = some_batch()
    moved_BT = (logprobs_BT - streams.old_logprobs_BT).clamp(-20, 20)
    free_BT = -streams.advantages_BT * moved_BT.exp() / streams.mask_BT.sum()
    held_BT = gradient_BT == 0
    torch.testing.assert_close(gradient_BT, torch.where(held_BT, 0.0, free_BT))
    assert (held_BT & streams.mask_BT).any()


@mark.parametrize("name", NAMES)
@mark.parametrize("estimator", ESTIMATORS)
def test_settings_survive_being_written_and_read_again(name, estimator):
    settings = LossSettings(name=name, kl_coefficient=0.01, kl_estimator=estimator)
    assert LossSettings.model_validate(settings.model_dump()) == settings


def test_a_constant_length_is_asked_for_by_name():
    old_BT = torch.zeros(1, 2)
    streams = Streams.uniform(old_BT == 0, advantage=1.0, old_logprobs_BT=old_BT)
    with raises(ValueError, match="completion limit"):
        objective(LossSettings(name="dr_grpo"))(
            old_BT, streams, Denominators.count([streams.mask_BT])
        )


@mark.parametrize("name", NAMES)
def test_an_objective_can_be_sent_to_another_process(name):
    old_BT = torch.full((1, 2), -1.0)
    streams = Streams.uniform(old_BT < 0, advantage=1.0, old_logprobs_BT=old_BT)
    denominators = Denominators.count([streams.mask_BT], budget=4.0)
    there, streams_there = pickle.loads(pickle.dumps((objective(LossSettings(name=name)), streams)))
    here = objective(LossSettings(name=name))(old_BT, streams, denominators)
    assert there(old_BT, streams_there, denominators).loss == here.loss
