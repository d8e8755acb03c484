"""What computes: a model with its forward pass, and what it can be asked to do.

A *job* is a function `(replica, payload, emit) -> result`. Who runs it, and where, is the business
of a crew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from forethought.policy.local.decoder import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What a worker computes with. `gradient_N` is where it leaves its flat gradient.

    Without one (the model in this process) gradients stay in the parameters' `grad`.
    `reference` is a frozen copy of the model at the stage's start, where a loss asks for one.
    """

    model: nn.Module
    decoder: Decoder
    gradient_N: Tensor | None
    reference: Decoder | None

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that learn, in one fixed order."""
        return trained_parameters(self.model)


Emit = Callable[[Any], None]
Job = Callable[[Replica, Any, Emit], Any]


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn, in one fixed order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
