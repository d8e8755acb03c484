"""REINFORCE: the score function, for policies that have not moved (RLOO, 2402.14740).

There is no ratio, so nothing corrects for updates between sampling and learning but the weights.
"""

from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams


def reinforce(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-A log π, summed over a sequence: the log-probability of the whole attempt."""
    per_token = PerToken(
        objective_BT=-streams.kept(streams.advantages_BT) * streams.kept(logprobs_BT),
        ratio_BT=log_ratio(logprobs_BT.detach(), streams).exp(),
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
