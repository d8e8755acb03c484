"""Rollout correction: what to do about samples that the learner would not have drawn alike.

Three policies: μ sampled, π_old is the learner before an update, π is being updated. Here π_old
is compared with μ; the ratio π/π_old stays the loss's. Where a loss is given μ's log-probabilities
as the old ones instead, its ratio is π/μ, it corrects for both at once, and nothing is needed here.

Shapes: B sequences, T tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forethought.learning.correction.diagnostics import diagnose
from forethought.learning.correction.mismatch import Mismatch
from forethought.learning.correction.rejection import kept_sequences, opsm
from forethought.learning.correction.settings import CorrectionSettings
from forethought.learning.correction.weights import importance_weights, normalized


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A step's weights (0 where the mask is false), its mask after rejection, and its figures.

    >>> Correction(weights_BT=torch.ones(1, 1), mask_BT=torch.ones(1, 1) > 0, figures={}).figures
    {}
    """

    weights_BT: Tensor
    mask_BT: Tensor
    figures: Mapping[str, float]


def correct(
    old_logprobs_BT: Tensor,
    sampled_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
    settings: CorrectionSettings,
) -> Correction:
    """Weights, mask and figures of a *whole* optimiser step, float32 or wider.

    Rejection edits the mask, so that denominators must be counted after it. Weights do not, nor
    does off-policy sequence masking, which is a factor of the objective in its source. Means for
    `normalize` are over what was kept. A step may be left without a token. A sequence with a
    log-probability that is NaN is no small ratio: it is kept and its weights are NaN, so that the
    update is not made and whoever sees to that can tell whose it was.
    """
    mismatch = Mismatch.between(old_logprobs_BT, sampled_logprobs_BT, mask_BT)
    unknown_B = mismatch.sums_B.isnan()
    kept_BT = mask_BT & (kept_sequences(mismatch, settings) | unknown_B)[:, None]
    weights_BT = importance_weights(mismatch, settings)
    figures = diagnose(mismatch, weights_BT, settings)
    if settings.normalize:
        by_sequence = settings.weight.startswith("sequence")
        weights_BT = normalized(weights_BT, kept_BT, by_sequence=by_sequence)
    if settings.opsm_delta is not None:
        counted_BT = opsm(advantages_BT, -mismatch.means_B, settings.opsm_delta)
        weights_BT = torch.where(counted_BT, weights_BT, 0.0)
    weights_BT = weights_BT.masked_fill(unknown_B[:, None], float("nan"))
    if figures:
        rejected = mask_BT.any(dim=1) & ~kept_BT.any(dim=1)
        figures["rejected"] = float(rejected.sum() / mask_BT.any(dim=1).sum())
    return Correction(
        weights_BT=torch.where(kept_BT, weights_BT, 0.0), mask_BT=kept_BT, figures=figures
    )
