"""Every policy loss by name. A new one is a file beside this and a line here."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from torch import Tensor

from forethought.learning.losses.cispo import cispo
from forethought.learning.losses.dapo import dapo
from forethought.learning.losses.dppo_tv import dppo_tv
from forethought.learning.losses.dr_grpo import dr_grpo
from forethought.learning.losses.gmpo import gmpo
from forethought.learning.losses.grpo import grpo
from forethought.learning.losses.grpo_scr import grpo_scr
from forethought.learning.losses.grpo_t import grpo_t
from forethought.learning.losses.grpo_tcr import grpo_tcr
from forethought.learning.losses.grpo_turn import grpo_turn
from forethought.learning.losses.reinforce import reinforce
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.sapo import sapo
from forethought.learning.losses.settings import LossName, LossSettings
from forethought.learning.streams import Denominators, Streams


class Loss(Protocol):
    """A policy loss: a pure function of tensors and of what its recipe says."""

    def __call__(
        self,
        logprobs_BT: Tensor,
        streams: Streams,
        denominators: Denominators,
        settings: LossSettings,
    ) -> LossResult:
        """The loss of one micro-batch, differentiable in `logprobs_BT`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss whose settings are decided; `sft.sft` is one. All that a learner knows.

    `reads_every_row` is False where a row without an advantage has no gradient and adds nothing to
    the loss but its share of the denominators, so that it need not be computed.

    >>> objective(LossSettings()).reads_every_row
    False
    """

    loss: Callable[[Tensor, Streams, Denominators], LossResult]
    reads_every_row: bool

    def __call__(
        self, logprobs_BT: Tensor, streams: Streams, denominators: Denominators
    ) -> LossResult:
        """The loss of one micro-batch, differentiable in `logprobs_BT`."""
        return self.loss(logprobs_BT, streams, denominators)


LOSSES: dict[LossName, Loss] = {
    "grpo": grpo,
    "grpo_t": grpo_t,
    "grpo_tcr": grpo_tcr,
    "grpo_scr": grpo_scr,
    "grpo_turn": grpo_turn,
    "dapo": dapo,
    "dr_grpo": dr_grpo,
    "cispo": cispo,
    "reinforce": reinforce,
    "sapo": sapo,
    "gmpo": gmpo,
    "dppo_tv": dppo_tv,
}


def objective(settings: LossSettings) -> Objective:
    """The loss that a recipe asks for, ready for a learner. It can be sent to other processes."""
    return Objective(
        loss=partial(LOSSES[settings.name], settings=settings),
        reads_every_row=settings.reads_every_row,
    )
