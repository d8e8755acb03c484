"""How far apart sampler and learner are, in a few numbers over the policy tokens of a step.

Shapes: B sequences, T tokens, N policy tokens.
"""

import torch
from torch import Tensor

from forethought.learning.correction.mismatch import Mismatch
from forethought.learning.correction.settings import CorrectionSettings
from forethought.learning.losses.kl import k3

QUANTILES = (0.01, 0.5, 0.99)


def effective_share(weights_N: Tensor) -> float:
    """1 / mean((w / mean w)²): the effective sample size as a share of the sample; 0 if w is 0."""
    mean = weights_N.mean()
    return float(1.0 / (weights_N / mean).square().mean()) if mean > 0 else 0.0


def quantiles(values_N: Tensor) -> dict[str, float]:
    """Sorted values at `QUANTILES`, each a value that occurs; by name, as p01."""
    ordered = values_N.sort().values
    return {
        f"p{round(100 * share):02d}": float(ordered[round(share * (len(ordered) - 1))])
        for share in QUANTILES
    }


def diagnose(
    mismatch: Mismatch, weights_BT: Tensor, settings: CorrectionSettings
) -> dict[str, float]:
    """Figures about rho = π_old/μ before any rejection; nothing without a policy token.

    `k1` is the mean of log μ - log π_old and `k3` that of rho - 1 - log rho; `ppl_ratio` the mean
    over sequences of the learner's perplexity over the sampler's; `chi2` is E[rho²] - 1 over tokens
    and over sequences. `ess` is of the weights, or of rho where there are none; `out_of_bounds` the
    share of ratios that the weights cut or drop, or that IcePop would where there are none.
    """
    if not mismatch.mask_BT.any():
        return {}
    logs_N = mismatch.tokens_BT[mismatch.mask_BT]
    present_B = mismatch.mask_BT.any(dim=1)
    sums_B, means_B = mismatch.sums_B[present_B], mismatch.means_B[present_B]
    ratios_N = logs_N.exp()
    tested = sums_B.exp() if settings.weight.startswith("sequence") else ratios_N
    low, high = settings.chosen_bounds
    weights_N = ratios_N if settings.weight == "none" else weights_BT[mismatch.mask_BT]
    figures = {
        "k1": float(-logs_N.mean()),
        "k3": float(k3(-logs_N).mean()),
        "ppl_ratio": float((-means_B).exp().mean()),
        "chi2_token": float((2.0 * logs_N).exp().mean() - 1.0),
        "chi2_sequence": float((2.0 * sums_B).exp().mean() - 1.0),
        "ess": effective_share(weights_N),
        "out_of_bounds": float(((tested < low) | (tested > high)).to(torch.float32).mean()),
    }
    return figures | {f"rho_{name}": value for name, value in quantiles(ratios_N).items()}
