"""GRPO-SCR: one length-normalised ratio a sequence (2510.11701, eq. 5 and 7; GSPO, 2507.18071).

A sequence's ratio moves far less than a token's, so its clip range is hundreds of times narrower
and clips far more often.

Shapes: B sequences, T tokens.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.kl import LIMIT
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=3e-4, clip_high=4e-4, dual_clip=0.0, aggregation="seq-mean-token-mean")


def sequence_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """exp of the mean log-ratio over a sequence's policy tokens, the same value at each of them.

    Its gradient at a token is that token's own, so that advantages may differ within a sequence;
    where they do not, value and gradient are those of the sequence form (GSPO, sec. 4.3).
    """
    difference_BT = streams.kept(logprobs_BT.detach()) - streams.kept(streams.old_logprobs_BT)
    lengths_B = streams.mask_BT.sum(dim=1).clamp(min=1)
    mean_B1 = (difference_BT.sum(dim=1) / lengths_B).clamp(-LIMIT, LIMIT)[:, None]
    policy_BT = streams.kept(logprobs_BT)
    return (mean_B1 + (policy_BT - policy_BT.detach())).exp()


def grpo_scr(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """The clipped surrogate of `sequence_ratio`, every sequence weighing the same."""
    ratio_BT = sequence_ratio(logprobs_BT, streams)
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
