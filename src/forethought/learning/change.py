"""How far an update moved the weights, seen at a few thousand of them.

Shapes: N numbers seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SEEN = 4096
"""Numbers of each parameter that are looked at, evenly spread over it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Copies of some numbers of every parameter, always the same ones.

    >>> weight = nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> Sample.of([weight]).change_since(Sample((torch.tensor([3.0, 0.0]),))) == 4 / 3
    True
    """

    parts: tuple[Tensor, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, parameters: Sequence[nn.Parameter]) -> "Sample":
        """The numbers as they are now."""
        return cls(
            tuple(
                each.flatten()[:: max(1, each.numel() // SEEN)].to(torch.float32, copy=True)
                for each in parameters
            )
        )

    def change_since(self, before: "Sample") -> float:
        """The norm of the change over the norm before it; 0 where that is 0."""
        moved = sum(
            float((now_N - then_N).square().sum())
            for now_N, then_N in zip(self.parts, before.parts, strict=True)
        )
        size = sum(float(then_N.square().sum()) for then_N in before.parts)
        return (moved / size) ** 0.5 if size else 0.0
