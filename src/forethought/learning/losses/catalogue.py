"""Every policy loss by name. A new one is a file beside this and a line here."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor

from forethought.learning.losses.grpo_scr import grpo_scr
from forethought.learning.losses.grpo_t import grpo_t
from forethought.learning.losses.grpo_tcr import grpo_tcr
from forethought.learning.losses.result import LossResult
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


Objective = Callable[[Tensor, Streams, Denominators], LossResult]
"""A loss whose settings are decided; `sft.sft` is one as it stands. All that a learner knows."""

LOSSES: dict[LossName, Loss] = {
    "grpo_t": grpo_t,
    "grpo_tcr": grpo_tcr,
    "grpo_scr": grpo_scr,
}


def objective(settings: LossSettings) -> Objective:
    """The loss that a recipe asks for, ready for a learner. It can be sent to other processes."""
    return partial(LOSSES[settings.name], settings=settings)
