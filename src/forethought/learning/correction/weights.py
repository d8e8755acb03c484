"""Importance weights of samples from another policy. They scale a loss and leave its denominator.

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.correction.mismatch import Mismatch
from forethought.learning.correction.settings import CorrectionSettings


def truncated(ratios: Tensor, cap: float) -> Tensor:
    """min(rho, C): truncated importance sampling, without a lower bound.

    Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; C is 2.
    """
    return ratios.clamp(max=cap)


def zero_outside(ratios: Tensor, low: float, high: float) -> Tensor:
    """rho within the bounds and 0 outside (IcePop of Ring-1T, 2510.18855, within 0.5 and 5)."""
    return torch.where((ratios >= low) & (ratios <= high), ratios, 0.0)


def importance_weights(mismatch: Mismatch, settings: CorrectionSettings) -> Tensor:
    """The weight of each policy token, 0 elsewhere.

    With a sequence's ratio, whose variance grows with its length, all its tokens weigh the same.
    """
    by_sequence = settings.weight.startswith("sequence")
    low, high = settings.chosen_bounds
    logs_BT = mismatch.sums_B[:, None] if by_sequence else mismatch.tokens_BT
    ratios_BT = logs_BT.exp().expand_as(mismatch.tokens_BT)
    if settings.weight == "none":
        weights_BT = torch.ones_like(ratios_BT)
    elif settings.weight in ("token_tis", "sequence_tis"):
        weights_BT = truncated(ratios_BT, high)
    else:
        weights_BT = zero_outside(ratios_BT, low, high)
    return torch.where(mismatch.mask_BT, weights_BT, 0.0)


def normalized(weights_BT: Tensor, mask_BT: Tensor, *, by_sequence: bool) -> Tensor:
    """Weights over their mean: over policy tokens, or over sequences where those share one.

    The mean is that of the whole optimiser step, so the step's tensors must come undivided.
    Weights that are all 0 stay so.
    """
    counted_BT = mask_BT
    if by_sequence:
        counted_BT = mask_BT & (mask_BT.cumsum(dim=1) == 1)
    mean = torch.where(counted_BT, weights_BT, 0.0).sum() / counted_BT.sum().clamp(min=1)
    return torch.where(mean > 0, weights_BT / mean, 0.0)
