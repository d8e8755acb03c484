"""A loss says truly whether rows without an advantage mean anything to it."""

import pytest
import torch

from forethought.learning.batch import pad
from forethought.learning.losses.catalogue import LOSSES, objective
from forethought.learning.losses.settings import APPLIES, LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.relevance import telling_rows
from forethought.learning.streams import Denominators, Streams
from learning.loss_cases import ASKED, ESTIMATORS
from learning.rows import random_rows

BATCH = pad(random_rows(4), [0.0, 1.0, 0.0, -0.5])
OPTIONS = {
    "its own terms": {},
    **{f"{key} = {value}": {key: value} for key, value in ASKED.items()},
    "no drift": {"drift_coefficient": 0.0},
    "entropy": {"entropy_coefficient": 0.1},
    "token-sum": {"aggregation": "token-sum"},
    **{each: {"kl_coefficient": 1e-3, "kl_estimator": each} for each in ESTIMATORS},
}
"""Every option that a loss may have, by what the test of it is called."""


def of(rows):
    """Streams of some of three rows, of which the second has no advantage, and a policy."""
    numbers_BT = torch.arange(24.0, dtype=torch.float64).view(3, 8)[rows]
    mask_BT = torch.ones_like(numbers_BT, dtype=torch.bool)
    mask_BT[:, :2] = False
    advantages_B1 = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)[rows, None]
    streams = Streams(
        mask_BT=mask_BT,
        advantages_BT=advantages_B1 * mask_BT,
        old_logprobs_BT=(numbers_BT * 1.1).sin() - 2.0,
        weights_BT=torch.ones_like(numbers_BT),
        ref_logprobs_BT=(numbers_BT * 1.2).sin() - 2.0,
    )
    return (numbers_BT.sin() - 2.0).requires_grad_(), streams


def pulls_at_zeros(loss):
    """Whether the second row has a gradient, or the loss and the others' gradient miss it."""
    found = []
    for rows in ([0, 1, 2], [0, 2]):
        logprobs_BT, streams = of(rows)
        value = loss(logprobs_BT, streams, Denominators(tokens=18.0, sequences=3.0, budget=8.0))
        found.append((value.loss.detach(), *torch.autograd.grad(value.loss, logprobs_BT)))
    (whole, whole_BT), (without, without_BT) = found
    same = torch.allclose(whole, without) and torch.allclose(whole_BT[[0, 2]], without_BT)
    return bool(whole_BT[1].any()) or not same


def applies(name, asked):
    """Whether a loss has the keys that are asked for."""
    return all(name in APPLIES[key][1] for key in asked if key in APPLIES) and not (
        "aggregation" in asked and name in ("grpo_scr", "gmpo")
    )


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, each) for name in LOSSES for each, asked in OPTIONS.items() if applies(name, asked)],
)
def test_a_loss_says_of_itself_whether_it_reads_rows_without_advantage(name, option):
    loss = objective(LossSettings(name=name, **OPTIONS[option]))
    assert loss.reads_every_row == pulls_at_zeros(loss)
    assert telling_rows(BATCH, loss) == ([0, 1, 2, 3] if loss.reads_every_row else [1, 3])


def test_most_losses_pass_over_rows_without_advantage_and_penalties_do_not():
    reading = {name for name in LOSSES if objective(LossSettings(name=name)).reads_every_row}
    assert reading == {"dppo_tv"}
    assert objective(LossSettings(kl_coefficient=1e-3)).reads_every_row


def test_imitation_reads_every_row():
    assert sft.reads_every_row
    assert pulls_at_zeros(sft)
    assert telling_rows(BATCH, sft) == [0, 1, 2, 3]


def test_where_no_row_has_an_advantage_all_are_computed():
    batch = pad(random_rows(3), [0.0, 0.0, 0.0])
    assert telling_rows(batch, objective(LossSettings())) == [0, 1, 2]
