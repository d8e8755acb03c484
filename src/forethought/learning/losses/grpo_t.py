"""GRPO-T: token ratios, token mean, symmetric clip (2510.11701, eq. 2-6).

Equation 6 prints the reference policy in the ratio; the policy that sampled is meant. The clipped
objective of PPO (1707.06347) and of REINFORCE++ (2501.03262) is this one, with other advantages.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.2)


def grpo_t(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """The conservative setting: the ratio may rise no further than it may fall."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
