"""The clipped surrogate; the losses that share it differ in their ratio and in their terms.

Shapes: B sequences, T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import token_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """The loss of each token, and which tokens a clip kept from moving further.

    >>> terms = Terms(clip_low=0.2, clip_high=0.2)
    >>> clipped_surrogate(torch.tensor([[1.5]]), torch.tensor([[1.0]]), terms).loss_BT
    tensor([[-1.2000]])
    """

    loss_BT: Tensor
    clip_low_BT: Tensor
    clip_high_BT: Tensor
    dual_clip_BT: Tensor


def clipped_surrogate(ratio_BT: Tensor, advantages_BT: Tensor, terms: Terms) -> Surrogate:
    """max(-A r, -A clip(r)), for A < 0 at most -A c (2510.11701, eq. 2; dual clip 1912.09729).

    The larger of the two is taken because the loss is minimised: a token that has moved too far
    *the wrong way* keeps its corrective gradient, so the ratio must not be clipped before. The
    two-sided clip -min(min(r, δ) A, clip(r) A) (INTELLECT-2, 2505.07291) is this with c = δ.
    """
    free_BT = -advantages_BT * ratio_BT
    fenced_BT = -advantages_BT * ratio_BT.clamp(1.0 - terms.clip_low, 1.0 + terms.clip_high)
    loss_BT = torch.maximum(free_BT, fenced_BT)
    clipped_BT = fenced_BT > free_BT
    dual_BT = torch.zeros_like(clipped_BT)
    if terms.dual_clip:
        cap_BT = -advantages_BT * terms.dual_clip
        dual_BT = (advantages_BT < 0) & (loss_BT > cap_BT)
        loss_BT = torch.where(dual_BT, cap_BT, loss_BT)
    return Surrogate(
        loss_BT=loss_BT,
        clip_low_BT=clipped_BT & (ratio_BT < 1.0),
        clip_high_BT=clipped_BT & (ratio_BT > 1.0),
        dual_clip_BT=dual_BT,
    )


def clipped_policy_loss(
    logprobs_BT: Tensor,
    streams: Streams,
    denominators: Denominators,
    settings: LossSettings,
    *,
    own: Terms,
    ratio: Callable[[Tensor, Streams], Tensor],
) -> LossResult:
    """The clipped surrogate of a ratio; a loss with its `own` terms and its ratio is a line."""
    ratio_BT = ratio(logprobs_BT, streams)
    advantages_BT = streams.kept(streams.advantages_BT)
    surrogate = clipped_surrogate(ratio_BT, advantages_BT, settings.terms(own))
    per_token = PerToken(
        objective_BT=surrogate.loss_BT,
        ratio_BT=ratio_BT,
        shares={
            "clip_low": surrogate.clip_low_BT,
            "clip_high": surrogate.clip_high_BT,
            "dual_clip": surrogate.dual_clip_BT,
        },
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)


token_clipped = partial(clipped_policy_loss, ratio=token_ratio)
"""The clipped surrogate of each token's own ratio."""
