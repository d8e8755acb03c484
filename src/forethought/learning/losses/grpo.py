"""GRPO as first published: token ratios, every sequence weighing the same (2402.03300, eq. 3)."""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.2)


def grpo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """A token of a long sequence counts for less than one of a short sequence."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
