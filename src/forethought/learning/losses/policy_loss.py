"""From what a loss says of each token to its number and its figures: the same end for all of them.

Shapes: B sequences, T tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from forethought.learning.aggregation import AGGREGATIONS
from forethought.learning.losses.kl import k1, k3, reference_penalty
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult, Tally
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class PerToken:
    """What a loss says of each token: its objective, its ratio, and which tokens a clip held.

    `penalty_BT` is what the policy pays for itself, whatever its samples are worth.

    >>> import torch
    >>> one = PerToken(objective_BT=torch.tensor([[-1.0]]), ratio_BT=torch.tensor([[1.0]]))
    >>> one.shares
    {}
    """

    objective_BT: Tensor
    ratio_BT: Tensor
    shares: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    penalty_BT: Tensor | None = None


def policy_loss(
    per_token: PerToken,
    logprobs_BT: Tensor,
    streams: Streams,
    denominators: Denominators,
    settings: LossSettings,
) -> LossResult:
    """The weighted objective plus an optional KL penalty, aggregated; and its tally.

    The weights scale the objective only: a penalty speaks of the policy, not of its samples.
    `reference_kl` in the tally is k3, whichever estimate is the penalty (`reference_penalty`).
    """
    loss_BT = per_token.objective_BT * streams.kept(streams.weights_BT)
    moved_BT = log_ratio(logprobs_BT.detach(), streams)
    means = {
        **per_token.shares,
        "approx_kl_k1": k1(-moved_BT),
        "approx_kl_k3": k3(-moved_BT),
    }
    if per_token.penalty_BT is not None:
        loss_BT = loss_BT + per_token.penalty_BT
    if settings.kl_coefficient:
        penalty_BT = reference_penalty(logprobs_BT, streams, settings.kl_estimator)
        loss_BT = loss_BT + settings.kl_coefficient * penalty_BT
        means["reference_kl"] = penalty_BT
        if settings.kl_estimator != "k3":
            means["reference_kl"] = reference_penalty(logprobs_BT.detach(), streams, "k3")
            means["reference_penalty"] = penalty_BT
    aggregate = AGGREGATIONS[settings.chosen_aggregation]
    return LossResult(
        loss=aggregate(loss_BT, streams.mask_BT, denominators),
        tally=Tally.over(streams.mask_BT, means, peaks={"ratio_max": per_token.ratio_BT}),
    )
