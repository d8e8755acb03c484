"""GRPO-TCR: token mean, clip-higher, overlong reward shaping, no KL (2510.11701, sec. 4.1).

The shaping is part of the reward (`rewards.overlong_penalty`), not of this loss.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.28, dual_clip=10.0)


def grpo_tcr(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """Clip-higher: unlikely tokens of good attempts have more room to become likely."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
