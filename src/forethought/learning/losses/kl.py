"""Estimates of the KL divergence of the policy from a reference, one value a sampled token.

With d = log π(y) - log π_ref(y) for a token y sampled from π (Schulman, "Approximating KL
divergence"). `k1` is for rewards and for metrics: in a loss its gradient is zero on average, so
`PENALTIES` does not offer it.

Shapes: B sequences, T tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from forethought.learning.losses.ratios import LIMIT, log_ratio
from forethought.learning.streams import Streams


def k1(difference: Tensor) -> Tensor:
    """d: unbiased, of either sign."""
    return difference


def k2(difference: Tensor) -> Tensor:
    """d²/2: biased in value; in a loss, exactly the gradient of KL(π‖π_ref)."""
    return difference.square() / 2


def k3(difference: Tensor) -> Tensor:
    """exp(-d) + d - 1: unbiased and never negative; in a loss, the gradient of KL(π_ref‖π)."""
    return (-difference).expm1() + difference


def k3_plus(difference: Tensor) -> Tensor:
    """The value of k3 with the gradient of k2: unbiased, and in a loss that of KL(π‖π_ref)."""
    pull = k2(difference)
    return k3(difference).detach() + (pull - pull.detach())


def absolute(difference: Tensor) -> Tensor:
    """|d|: in a loss, twice the gradient of the total variation between π and π_ref."""
    return difference.abs()


PENALTIES: dict[str, Callable[[Tensor], Tensor]] = {
    "k2": k2,
    "k3": k3,
    "k3+": k3_plus,
    "abs": absolute,
}

OFF_POLICY = "k3_off_policy"
"""k3 times π/π_old, differentiated through both: unbiased in value and gradient for tokens of an
older policy (DeepSeek-V3.2, 2512.02556)."""


def reference_penalty(logprobs_BT: Tensor, streams: Streams, estimator: str) -> Tensor:
    """The estimate per policy token, 0 elsewhere; differentiable in `logprobs_BT`.

    Raises ValueError without reference log-probabilities, or for an estimator that would not
    penalise.
    """
    if streams.ref_logprobs_BT is None:
        raise ValueError("a KL penalty needs ref_logprobs_BT, and these streams have none")
    difference_BT = streams.kept(logprobs_BT) - streams.kept(streams.ref_logprobs_BT)
    difference_BT = difference_BT.clamp(-LIMIT, LIMIT)
    if estimator == OFF_POLICY:
        return log_ratio(logprobs_BT, streams).exp() * k3(difference_BT)
    if estimator not in PENALTIES:
        raise ValueError(
            f"{estimator} is no KL penalty: its gradient would not be that of a divergence; "
            f"use one of {', '.join([*PENALTIES, OFF_POLICY])}"
        )
    return PENALTIES[estimator](difference_BT)


def reward_penalty(
    old_logprobs_BT: Tensor, ref_logprobs_BT: Tensor, mask_BT: Tensor, coefficient: float
) -> Tensor:
    """-β k1 as part of each policy token's reward, 0 elsewhere; constant.

    Through the policy gradient this is the reverse KL (REINFORCE++, 2501.03262). The policy that
    sampled is compared with the reference, since rewards are given to what was sampled.
    """
    difference_BT = torch.where(mask_BT, old_logprobs_BT - ref_logprobs_BT, 0.0)
    return -coefficient * k1(difference_BT.clamp(-LIMIT, LIMIT)).detach()
