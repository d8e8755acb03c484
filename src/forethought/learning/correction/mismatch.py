"""How far apart learner and sampler are on the same tokens: the logarithm of rho = π_old/μ.

Both log-probabilities are of the same weights or of weights that differ by updates; engines that
compute with other kernels or number types differ in either case.

Shapes: B sequences, T tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from forethought.learning.losses.kl import k3
from forethought.learning.losses.ratios import LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """log rho of each policy token (0 elsewhere) and of each sequence, cut at ±20; constant.

    >>> old_BT, sampled_BT = torch.tensor([[-1.0, -3.0]]), torch.tensor([[-1.5, -3.0]])
    >>> Mismatch.between(old_BT, sampled_BT, sampled_BT < 0).sums_B
    tensor([0.5000])
    """

    mask_BT: Tensor
    tokens_BT: Tensor
    sums_B: Tensor
    means_B: Tensor

    @classmethod
    def between(cls, old_BT: Tensor, sampled_BT: Tensor, mask_BT: Tensor) -> "Mismatch":
        """From the learner's and the sampler's log-probabilities of the same tokens."""
        raw_BT = torch.where(mask_BT, old_BT - sampled_BT, 0.0).detach()
        sums_B = raw_BT.sum(dim=1)
        lengths_B = mask_BT.sum(dim=1).clamp(min=1)
        return cls(
            mask_BT=mask_BT,
            tokens_BT=raw_BT.clamp(-LIMIT, LIMIT),
            sums_B=sums_B.clamp(-LIMIT, LIMIT),
            means_B=(sums_B / lengths_B).clamp(-LIMIT, LIMIT),
        )

    def mean_k3(self) -> Tensor:
        """rho - 1 - log rho, averaged over each sequence (shape [B]): KL(μ‖π_old), at least 0."""
        lengths_B = self.mask_BT.sum(dim=1).clamp(min=1)
        return k3(-self.tokens_BT).sum(dim=1) / lengths_B
