"""CISPO: the ratio is a capped weight, and no token loses its gradient (2506.13585, eq. 4-5).

The loss's value is not a surrogate: it moves with log π itself, and only its gradient means
anything. Three conventions for the weight are in use, and a recipe can say each of them:

- capped at 1 + ε, without a lower bound: `clip_high` = ε (as published);
- between 1 - ε_low and 1 + ε_high: `clip_low` and `clip_high`;
- capped at a number: `cispo_cap_abs` (ScaleRL, 2510.13786, caps at 5).

MiniMax-M1 does not print its ε; 0.28 is that of clip-higher.
"""

from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings, Terms
from forethought.learning.streams import Denominators, Streams

OWN = Terms(clip_low=1.0, clip_high=0.28)
"""A ratio is never below 0, so that a `clip_low` of 1 is no bound."""


def weight_bounds(settings: LossSettings) -> tuple[float, float]:
    """The lowest and the highest weight that a recipe allows.

    >>> weight_bounds(LossSettings(name="cispo", cispo_cap_abs=5.0))
    (0.0, 5.0)
    """
    terms = settings.terms(OWN)
    cap = settings.cispo_cap_abs
    return 1.0 - terms.clip_low, 1.0 + terms.clip_high if cap is None else cap


def cispo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-sg[clip(r)] A log π at every policy token."""
    ratio_BT = log_ratio(logprobs_BT.detach(), streams).exp()
    low, high = weight_bounds(settings)
    weight_BT = ratio_BT.clamp(low, high)
    per_token = PerToken(
        objective_BT=-weight_BT * streams.kept(streams.advantages_BT) * streams.kept(logprobs_BT),
        ratio_BT=ratio_BT,
        shares={"clip_low": ratio_BT < low, "clip_high": ratio_BT > high},
    )
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
