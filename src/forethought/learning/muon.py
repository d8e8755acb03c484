"""Muon in a number type that the device multiplies fast, and many matrices at once.

torch's own always orthogonalises in bfloat16, one matrix after the other. A processor without
bfloat16 arithmetic imitates it, and a small model then spends most of a step there.

Shapes: M matrices, A rows, B columns.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from forethought.learning.precision import has_bfloat16

TOGETHER = 2**22
"""Numbers in the matrices that are orthogonalised at once, at most: a matter of memory."""


class Muon(torch.optim.Muon):
    """torch's Muon (https://kellerjordan.github.io/posts/muon/): its settings and its state."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        assert closure is None, "gradients are computed before the step"
        for group in self.param_groups:
            for matrices in portions([each for each in group["params"] if each.grad is not None]):
                self._move(matrices, group)

    def _move(self, matrices: Sequence[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices of one shape: away from their momentum, made orthogonal."""
        rows, columns = matrices[0].shape
        directions_MAB = torch.stack(
            [self._direction(each, group["momentum"]) for each in matrices]
        )
        updates_MAB = orthogonal(
            directions_MAB.to(fast_dtype(directions_MAB.device)),
            group["ns_coefficients"],
            group["ns_steps"],
            group["eps"],
        )
        rate = group["lr"] * math.sqrt(max(1.0, rows / columns))
        for matrix, update_AB in zip(matrices, updates_MAB, strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.add_(update_AB, alpha=-rate)

    def _direction(self, matrix: Tensor, momentum: float) -> Tensor:
        """Nesterov momentum of a matrix's gradient."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        held_AB = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(held_AB, momentum)


def orthogonal(
    matrices_MAB: Tensor, coefficients: tuple[float, float, float], steps: int, epsilon: float
) -> Tensor:
    """Each matrix with all its singular values brought near 1, by Newton-Schulz iteration."""
    a, b, c = coefficients
    _, rows, columns = matrices_MAB.shape
    wide: Tensor = matrices_MAB.mT if rows > columns else matrices_MAB
    found: Tensor = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp(min=epsilon)
    for _ in range(steps):
        gram: Tensor = found @ found.mT
        found = torch.baddbmm(
            found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a
        )
    return found.mT if rows > columns else found


def portions(matrices: Sequence[Tensor], together: int = TOGETHER) -> Iterator[list[Tensor]]:
    """Matrices of one shape and device, of so many numbers together at most, or one alone."""

    def kind(matrix: Tensor) -> tuple[str, int, int]:
        rows, columns = matrix.shape
        return str(matrix.device), rows, columns

    for (_, rows, columns), alike in groupby(sorted(matrices, key=kind), kind):
        left, count = list(alike), max(1, together // (rows * columns))
        for start in range(0, len(left), count):
            yield left[start : start + count]


def fast_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies it by instructions of its own, else float32."""
    return torch.bfloat16 if has_bfloat16(device) else torch.float32
