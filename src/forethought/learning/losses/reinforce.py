"""REINFORCE: the score function of whole attempts (RLOO, 2402.14740).

The policy moves from one mini-batch of a round to the next, and its samples do not. Each sequence
therefore weighs by its importance sg[π/π_old], the product of its tokens' ratios, cut from above:
that is 1 at the policy that sampled. `cispo` is the same with one capped weight a token.

Shapes: B sequences, T tokens.
"""

from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import joint_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams

CAP = 2.0
"""The largest importance where a recipe is silent: as usual for truncated importance sampling."""


def reinforce(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-sg[min(π/π_old, C)] A log π, summed over a sequence: its log-probability as a whole."""
    cap = CAP if settings.importance_cap is None else settings.importance_cap
    ratio_BT = joint_ratio(logprobs_BT.detach(), streams)
    scored_BT = streams.kept(streams.advantages_BT) * streams.kept(logprobs_BT)
    per_token = PerToken(
        objective_BT=-ratio_BT.clamp(max=cap) * scored_BT,
        ratio_BT=ratio_BT,
        shares={"clip_high": ratio_BT > cap},
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
