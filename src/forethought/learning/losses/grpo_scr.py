"""GRPO-SCR: one length-normalised ratio a sequence (2510.11701, eq. 5 and 7).

It is GSPO (2507.18071) in its token form. A sequence's ratio moves far less than a token's, so
its clip range is hundreds of times narrower and clips far more often.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import sequence_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=3e-4, clip_high=4e-4)


def grpo_scr(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """The clipped surrogate of `sequence_ratio`, every sequence weighing the same."""
    ratio_BT = sequence_ratio(logprobs_BT, streams)
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
