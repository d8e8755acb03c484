"""What computes: a model with its forward passes, and what it can be asked to do.

A *job* is a function `(replica, payload, port) -> result`. Who runs it, and where, is the business
of a crew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from forethought.core.errors import PolicyError
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.inference import Inference
from forethought.policy.local.value_head import value_head_of


@dataclass(frozen=True, kw_only=True)
class Replica:
    """What a worker computes with. `gradient_N` is where it leaves its flat gradient.

    Without one (the model in this process) gradients stay in the parameters' `grad`.
    `reference` is a frozen copy of the model at the stage's start, where a loss asks for one.
    `dtype` is the number type that it speaks in.
    """

    model: nn.Module
    decoder: Decoder
    gradient_N: Tensor | None = None
    reference: Decoder | None = None
    dtype: torch.dtype = torch.float32

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that learn, in one fixed order."""
        return trained_parameters(self.model)

    @property
    def value_head(self) -> nn.Linear | None:
        """The critic's head, where the model has one."""
        return value_head_of(self.model)

    @cached_property
    def inference(self) -> Inference:
        """The model as sampling uses it; made when first asked for."""
        return Inference(self.model, self.decoder, self.dtype)


class GoneError(PolicyError):
    """A replica is no more: it was put away, or its process ended."""


CLOSED = object()
"""What an inbox holds when nothing more will come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A job's line to the one who asked for it. Calling it tells the other side something."""

    emit: Callable[[Any], None]
    inbox: SimpleQueue[Any]

    def __call__(self, value: Any) -> None:
        """Tell the other side something."""
        self.emit(value)

    def wait(self) -> list[Any]:
        """What the other side told since it was last asked: at least one thing.

        Raises `GoneError` when nothing will come any more.
        """
        return [_open(self.inbox.get()), *self.heard()]

    def heard(self) -> list[Any]:
        """What the other side told since it was last asked: perhaps nothing.

        Raises `GoneError` when nothing will come any more.
        """
        heard: list[Any] = []
        while True:
            try:
                heard.append(_open(self.inbox.get_nowait()))
            except Empty:
                return heard


def _open(message: Any) -> Any:
    if message is CLOSED:
        raise GoneError("the model was put away while it was at work")
    return message


Job = Callable[[Replica, Any, Port], Any]


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn, in one fixed order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
