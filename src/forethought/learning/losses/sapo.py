"""SAPO: a sigmoid in place of a clip, so that the gradient fades and never stops (2511.20347).

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.losses.policy_loss import PerToken, policy_loss
from forethought.learning.losses.ratios import log_ratio
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Denominators, Streams

TAU_POSITIVE, TAU_NEGATIVE = 1.0, 1.05


def gate(ratio_BT: Tensor, tau_BT: Tensor) -> Tensor:
    """(4/τ) sigmoid(τ (r - 1)), of slope 1 at r = 1.

    >>> gate(torch.tensor([[1.0]]), torch.tensor([[1.0]]))
    tensor([[2.]])
    """
    return 4.0 / tau_BT * torch.sigmoid(tau_BT * (ratio_BT - 1.0))


def sapo(
    logprobs_BT: Tensor, streams: Streams, denominators: Denominators, settings: LossSettings
) -> LossResult:
    """-A times `gate`; advantages that are not positive fade sooner."""
    ratio_BT = log_ratio(logprobs_BT, streams).exp()
    advantages_BT = streams.kept(streams.advantages_BT)
    tau_BT = torch.where(
        advantages_BT > 0,
        ratio_BT.new_tensor(settings.tau_positive or TAU_POSITIVE),
        ratio_BT.new_tensor(settings.tau_negative or TAU_NEGATIVE),
    )
    per_token = PerToken(objective_BT=-advantages_BT * gate(ratio_BT, tau_BT), ratio_BT=ratio_BT)
    return policy_loss(per_token, logprobs_BT, streams, denominators, settings)
