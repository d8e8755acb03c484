"""DAPO: token mean and clip-higher, without a dual clip (2503.14476, eq. 8).

Its dynamic sampling belongs to the loop, its overlong punishment to the reward.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.28)


def dapo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """Clip-higher: unlikely tokens of good attempts have more room to become likely."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
