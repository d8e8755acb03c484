"""How far an update moved the weights, seen at a few thousand numbers of each parameter.

Shapes: N numbers seen, P parameters.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SEEN = 4096
"""Numbers of each parameter that are looked at, evenly spread over it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Copies of some numbers of every parameter, always the same ones, and what each stands for.

    >>> weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> before = Sample.of([weight])
    >>> _ = weight.data.mul_(2.0)
    >>> Sample.of([weight]).change_since(before)
    1.0
    """

    parts: tuple[Tensor, ...]
    weights: tuple[float, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, parameters: Sequence[nn.Parameter]) -> "Sample":
        """The numbers as they are now."""
        parts = tuple(
            each.flatten()[:: max(1, each.numel() // SEEN)].to(torch.float32, copy=True)
            for each in parameters
        )
        weights = tuple(
            each.numel() / len(part) for each, part in zip(parameters, parts, strict=True)
        )
        return cls(parts, weights)

    def change_since(self, before: "Sample") -> float:
        """The norm of the change over the norm before it; 0 where that is 0.

        Each parameter counts as all of its numbers, of which those seen are a fair sample.
        """
        moved = [now_N - then_N for now_N, then_N in zip(self.parts, before.parts, strict=True)]
        change, size = self._square(moved), self._square(before.parts)
        return (change / size) ** 0.5 if size else 0.0

    def _square(self, parts: Sequence[Tensor]) -> float:
        squares_P = torch.stack([part_N.square().sum() for part_N in parts]).cpu().double()
        return float((squares_P * torch.tensor(self.weights, dtype=torch.float64)).sum())
