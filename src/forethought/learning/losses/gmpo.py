"""GMPO: the geometric mean of a sequence's clipped token ratios (2507.20673).

One outlier among a sequence's ratios moves a geometric mean less than it moves an arithmetic one.
The clip is in log space, so `clip_low` and `clip_high` are distances of log r from 0.

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import LIMIT, log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.4, clip_high=0.4)


def fenced_log_ratio(log_ratio_BT: Tensor, advantages_BT: Tensor, terms: Terms) -> Tensor:
    """The log-ratio, held where it has gone further than the clip in its advantage's direction.

    0 without an advantage.
    """
    sign_BT = advantages_BT.sign()
    fenced_BT = log_ratio_BT.clamp(-terms.clip_low, terms.clip_high)
    return sign_BT * torch.minimum(sign_BT * log_ratio_BT, sign_BT * fenced_BT)


def geometric_ratio(fenced_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """exp of each sequence's mean, the same value at each of its tokens; a token's own gradient."""
    lengths_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    mean_B1 = fenced_BT.detach().sum(dim=1, keepdim=True) / lengths_B1
    return (mean_B1.clamp(-LIMIT, LIMIT) + (fenced_BT - fenced_BT.detach())).exp()


def gmpo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-A times the geometric ratio, every sequence weighing the same."""
    terms = settings.terms(OWN)
    advantages_BT = streams.kept(streams.advantages_BT)
    moved_BT = log_ratio(logprobs_BT, streams)
    ratio_BT = geometric_ratio(fenced_log_ratio(moved_BT, advantages_BT, terms), streams.mask_BT)
    per_token = PerToken(
        objective_BT=-advantages_BT * ratio_BT,
        ratio_BT=ratio_BT,
        shares={
            "clip_low": (advantages_BT < 0) & (moved_BT < -terms.clip_low),
            "clip_high": (advantages_BT > 0) & (moved_BT > terms.clip_high),
        },
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
