"""Which sequences are kept. A rejected one leaves the mask, and with it every denominator.

Ratios themselves are compared with the bounds: where a bound is put on the negative logarithm, as
some do, bounds that are not each other's inverse hold for 1/rho.

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.correction.mismatch import Mismatch
from forethought.learning.correction.settings import CorrectionSettings


def within(logs_B: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Whether exp of each value lies within the bounds.

    Sums give a sequence's ratio (masked importance sampling), means its geometric mean.
    """
    ratios_B = logs_B.exp()
    return (ratios_B >= bounds[0]) & (ratios_B <= bounds[1])


def without_veto(mismatch: Mismatch, least: float) -> Tensor:
    """Whether no policy token of a sequence has a ratio below `least`, which is below 1."""
    return (mismatch.tokens_BT.exp() >= least).all(dim=1)


def kept_sequences(mismatch: Mismatch, settings: CorrectionSettings) -> Tensor:
    """The sequences (bool, shape [B]) that pass every test that the recipe asks for."""
    kept_B = torch.ones_like(mismatch.sums_B, dtype=torch.bool)
    if settings.sequence_bounds is not None:
        kept_B &= within(mismatch.sums_B, settings.sequence_bounds)
    if settings.geometric_bounds is not None:
        kept_B &= within(mismatch.means_B, settings.geometric_bounds)
    if settings.most_k3 is not None:
        kept_B &= mismatch.mean_k3() <= settings.most_k3
    if settings.veto_below is not None:
        kept_B &= without_veto(mismatch, settings.veto_below)
    return kept_B


def opsm(advantages_BT: Tensor, divergence_B: Tensor, delta: float) -> Tensor:
    """Off-policy sequence masking (DeepSeek-V3.2, 2512.02556): the tokens (bool) that still count.

    Dropped are those of negative advantage in a sequence whose mean log μ/π is above `delta`.
    """
    return (advantages_BT >= 0) | (divergence_B <= delta)[:, None]
