"""A loss is asked whether rows without an advantage mean anything to it."""

import dataclasses

import pytest

from forethought.learning.batch import pad
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.relevance import passes_over_zeros, telling_rows
from learning.rows import random_rows

BATCH = pad(random_rows(4), [0.0, 1.0, 0.0, -0.5])


def with_entropy(logprobs_BT, streams, denominators):
    """A loss that pushes every token of the policy a little."""
    result = objective(LossSettings())(logprobs_BT, streams, denominators)
    extra = streams.kept(logprobs_BT).sum() / denominators.tokens
    return dataclasses.replace(result, loss=result.loss + 0.01 * extra)


SELF_CONTAINED = [name for name in LOSSES if name != "dppo_tv"]
"""Those without a penalty of their own, which rows without advantage would pay too."""


@pytest.mark.parametrize("name", SELF_CONTAINED)
def test_a_policy_loss_passes_over_rows_without_advantage(name):
    loss = objective(LossSettings(name=name))
    assert passes_over_zeros(loss)
    assert telling_rows(BATCH, loss) == [1, 3]


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_penalty_needs_every_row(name, estimator):
    loss = objective(LossSettings(name=name, kl_coefficient=1e-3, kl_estimator=estimator))
    assert not passes_over_zeros(loss)
    assert telling_rows(BATCH, loss) == [0, 1, 2, 3]


@pytest.mark.parametrize("loss", [sft, with_entropy, objective(LossSettings(name="dppo_tv"))])
def test_a_loss_that_is_not_about_advantages_needs_every_row(loss):
    assert not passes_over_zeros(loss)
    assert telling_rows(BATCH, loss) == [0, 1, 2, 3]


def test_where_no_row_has_an_advantage_all_are_computed():
    batch = pad(random_rows(3), [0.0, 0.0, 0.0])
    assert telling_rows(batch, objective(LossSettings())) == [0, 1, 2]
