"""Which rows a loss can learn from.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false

import torch
from torch import Tensor

from forethought.learning.batch import Batch
from forethought.learning.losses.catalogue import Objective
from forethought.learning.streams import Denominators, Streams


def telling_rows(batch: Batch, objective: Objective) -> list[int]:
    """The rows to compute: those with an advantage, where the loss has no use for the others.

    All of them where no row has one.
    """
    has_one_B = (batch.advantages_BT != 0).any(dim=1)
    if bool(has_one_B.any()) and passes_over_zeros(objective):
        rows: list[int] = has_one_B.nonzero()[:, 0].tolist()
        return rows
    return list(range(len(batch.ids_BT)))


def passes_over_zeros(objective: Objective) -> bool:
    """Whether rows without advantage change nothing in a loss but what it is divided by.

    The loss itself is asked, with made-up numbers: a row without advantage between two others must
    have no gradient, and without it the loss and the others' gradient must be the same.
    """
    whole = _asked(objective, [0, 1, 2])
    without = _asked(objective, [0, 2])
    if whole[1][1].any():
        return False
    return torch.allclose(whole[0], without[0]) and torch.allclose(whole[1][[0, 2]], without[1])


def _asked(objective: Objective, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of some of three rows, of which the second has no advantage."""
    numbers_BT = torch.arange(24.0, dtype=torch.float64).view(3, 8)[rows]
    mask_BT = torch.ones_like(numbers_BT, dtype=torch.bool)
    mask_BT[:, :2] = False
    advantages_B1 = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)[rows, None]
    logprobs_BT = (numbers_BT.sin() - 2.0).requires_grad_()
    streams = Streams(
        mask_BT=mask_BT,
        advantages_BT=advantages_B1 * mask_BT,
        old_logprobs_BT=(numbers_BT * 1.1).sin() - 2.0,
        weights_BT=torch.ones_like(numbers_BT),
        ref_logprobs_BT=(numbers_BT * 1.2).sin() - 2.0,
    )
    loss = objective(
        logprobs_BT, streams, Denominators(tokens=18.0, sequences=3.0, budget=8.0)
    ).loss
    (gradient_BT,) = torch.autograd.grad(loss, logprobs_BT)
    return loss.detach(), gradient_BT
