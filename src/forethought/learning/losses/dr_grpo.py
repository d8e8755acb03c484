"""Dr. GRPO: every token weighs the same, over a constant length (2503.20783, sec. 3.2).

Its advantage is the reward minus the mean of its group, not divided by a deviation
(`advantage.dr_grpo`).
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.2)


def dr_grpo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """A long wrong attempt is not excused by its length, nor a short right one favoured."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
