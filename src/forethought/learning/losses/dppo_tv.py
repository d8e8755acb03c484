"""DPPO with a binary total-variation trust region (as in prime-rl's default loss).

A token is left out once its *probability*, not its ratio, has moved too far in its advantage's
direction: an unlikely token may double without being held. `clip_low` and `clip_high` are those
distances. The old log-probabilities are meant to be the sampler's own.

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=0.2, clip_high=0.2)
DRIFT = 1e-3


def dppo_tv(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-A r where the probability is near the old one, and a penalty on log² r everywhere.

    A token that is left out stays in the denominator.
    """
    terms = settings.terms(OWN)
    drift = DRIFT if settings.drift_coefficient is None else settings.drift_coefficient
    advantages_BT = streams.kept(streams.advantages_BT)
    moved_BT = log_ratio(logprobs_BT, streams)
    ratio_BT = moved_BT.exp()
    rise_BT = streams.kept(logprobs_BT.detach().exp() - streams.old_logprobs_BT.exp())
    too_high_BT = (advantages_BT > 0) & (rise_BT > terms.clip_high)
    too_low_BT = (advantages_BT <= 0) & (rise_BT < -terms.clip_low)
    per_token = PerToken(
        objective_BT=torch.where(too_high_BT | too_low_BT, 0.0, -advantages_BT * ratio_BT),
        ratio_BT=ratio_BT,
        shares={"clip_low": too_low_BT, "clip_high": too_high_BT},
        penalty_BT=drift * moved_BT.square(),
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
