"""One length-normalised ratio a turn: between a ratio a token and GSPO's ratio a sequence.

Our own extension of GSPO (2507.18071) to attempts of several turns: a turn that has drifted is
clipped without its neighbours. No clip range is published for it; that of sequences is taken.
"""

from torch import Tensor

from forethought.learning.losses.clipped import clipped_policy_loss
from forethought.learning.losses.ratios import turn_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=3e-4, clip_high=4e-4)


def grpo_turn(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """The clipped surrogate of `turn_ratio`, every sequence weighing the same."""
    ratio_BT = turn_ratio(logprobs_BT, streams)
    return clipped_policy_loss(
        ratio_BT, logprobs_BT, streams, denominators, settings=settings, own=OWN
    )
