"""The clipped surrogate that every policy loss here shares; losses differ in their ratio.

Shapes: B sequences, T tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from forethought.learning.aggregation import AGGREGATIONS
from forethought.learning.losses.kl import LIMIT, k1, k3, reference_penalty
from forethought.learning.losses.result import LossResult, Tally
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate:
    """The loss of each token, and which tokens a clip kept from moving further.

    >>> terms = Terms(clip_low=0.2, clip_high=0.2, dual_clip=0.0, aggregation="token-mean")
    >>> clipped_surrogate(torch.tensor([[1.5]]), torch.tensor([[1.0]]), terms).loss_BT
    tensor([[-1.2000]])
    """

    loss_BT: Tensor
    clip_low_BT: Tensor
    clip_high_BT: Tensor
    dual_clip_BT: Tensor


def log_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """log π/π_old at policy tokens, cut at ±20; 0 elsewhere."""
    difference_BT = streams.kept(logprobs_BT) - streams.kept(streams.old_logprobs_BT)
    return difference_BT.clamp(-LIMIT, LIMIT)


def clipped_surrogate(ratio_BT: Tensor, advantages_BT: Tensor, terms: Terms) -> Surrogate:
    """max(-A r, -A clip(r)), for A < 0 at most -A c (2510.11701, eq. 2; dual clip 1912.09729).

    The larger of the two is taken because the loss is minimised: a token that has moved too far
    *the wrong way* keeps its corrective gradient, so the ratio must not be clipped before.
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
    ratio_BT: Tensor,
    logprobs_BT: Tensor,
    streams: Streams,
    denominators: Denominators,
    *,
    settings: LossSettings,
    own: Terms,
) -> LossResult:
    """The weighted surrogate plus an optional KL penalty, aggregated; and its tally.

    The weights scale the surrogate only: the penalty speaks of the policy, not of its samples.
    """
    terms = settings.terms(own)
    surrogate = clipped_surrogate(ratio_BT, streams.kept(streams.advantages_BT), terms)
    loss_BT = surrogate.loss_BT * streams.kept(streams.weights_BT)
    moved_BT = log_ratio(logprobs_BT.detach(), streams)
    means = {
        "clip_low": surrogate.clip_low_BT,
        "clip_high": surrogate.clip_high_BT,
        "dual_clip": surrogate.dual_clip_BT,
        "approx_kl_k1": k1(-moved_BT),
        "approx_kl_k3": k3(-moved_BT),
    }
    if settings.kl_coefficient:
        penalty_BT = reference_penalty(logprobs_BT, streams, settings.kl_estimator)
        loss_BT = loss_BT + settings.kl_coefficient * penalty_BT
        means["reference_kl"] = penalty_BT
    return LossResult(
        loss=AGGREGATIONS[terms.aggregation](loss_BT, streams.mask_BT, denominators),
        tally=Tally.over(streams.mask_BT, means, peaks={"ratio_max": ratio_BT}),
    )
