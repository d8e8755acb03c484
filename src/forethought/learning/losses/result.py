"""What a loss gives back: a number to minimise, and sums about the tokens it came from.

Shapes: B sequences, T tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Sums and maxima over policy tokens. Tallies of micro-batches add up to that of the batch.

    Tensors stay where they were computed until `read`, so that a step waits for its device once.

    >>> one = Tally.over(torch.tensor([[True, False]]), {"nll": torch.tensor([[2.0, 9.0]])})
    >>> (one + one).read()
    {'nll': 2.0}
    """

    tokens: Tensor
    sums: Mapping[str, Tensor]
    peaks: Mapping[str, Tensor]

    @classmethod
    def over(
        cls,
        mask_BT: Tensor,
        means: Mapping[str, Tensor],
        peaks: Mapping[str, Tensor] | None = None,
    ) -> "Tally":
        """Count the tokens of `mask_BT`; sum each of `means` over them; keep each of `peaks`' top.

        Peaks are of quantities that are never negative: a part without a token adds a 0.
        """

        def kept(values_BT: Tensor) -> Tensor:
            return torch.where(mask_BT, values_BT.detach(), 0)

        return cls(
            tokens=mask_BT.sum(),
            sums={name: kept(values_BT).sum() for name, values_BT in means.items()},
            peaks={name: kept(values_BT).max() for name, values_BT in (peaks or {}).items()},
        )

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            tokens=self.tokens + other.tokens,
            sums={name: total + other.sums[name] for name, total in self.sums.items()},
            peaks={name: torch.maximum(top, other.peaks[name]) for name, top in self.peaks.items()},
        )

    def read(self) -> dict[str, float]:
        """The mean of every sum over the policy tokens, and the peaks; nothing without a token.

        A mean over no tokens is not measured, which a 0 would hide.
        """
        tokens = int(self.tokens)
        if not tokens:
            return {}
        means = {name: float(total) / tokens for name, total in self.sums.items()}
        return means | {name: float(top) for name, top in self.peaks.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossResult:
    """A loss to minimise (scalar, differentiable) and its tally (constant).

    >>> empty = Tally.over(torch.tensor([[False]]), {})
    >>> LossResult(loss=torch.zeros(()), tally=empty).tally.read()
    {}
    """

    loss: Tensor
    tally: Tally
