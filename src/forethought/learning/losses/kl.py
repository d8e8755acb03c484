"""Estimates of the KL divergence of the policy from a reference, one value a sampled token.

With d = log π(y) - log π_ref(y) for a token y sampled from π (Schulman, "Approximating KL
divergence"). `k1` is for rewards and for metrics: in a loss its gradient is zero on average, so
`PENALTIES` does not offer it.
"""

from collections.abc import Callable

from torch import Tensor

from forethought.learning.streams import Streams

LIMIT = 20.0
"""Log-ratios are cut at this size, so that no exponential overflows."""


def k1(difference: Tensor) -> Tensor:
    """d: unbiased, of either sign."""
    return difference


def k2(difference: Tensor) -> Tensor:
    """d²/2: biased in value; in a loss, exactly the gradient of KL(π‖π_ref)."""
    return difference.square() / 2


def k3(difference: Tensor) -> Tensor:
    """exp(-d) + d - 1: unbiased and never negative; in a loss, the gradient of KL(π_ref‖π)."""
    return (-difference).expm1() + difference


PENALTIES: dict[str, Callable[[Tensor], Tensor]] = {"k2": k2, "k3": k3}


def reference_penalty(logprobs_BT: Tensor, streams: Streams, estimator: str) -> Tensor:
    """The estimate per policy token, 0 elsewhere; differentiable in `logprobs_BT`.

    Raises ValueError without reference log-probabilities, or for an estimator that would not
    penalise.
    """
    if streams.ref_logprobs_BT is None:
        raise ValueError("a KL penalty needs ref_logprobs_BT, and these streams have none")
    if estimator not in PENALTIES:
        raise ValueError(
            f"{estimator} is no KL penalty: its gradient would not be that of a divergence; "
            f"use one of {', '.join(PENALTIES)}"
        )
    difference_BT = streams.kept(logprobs_BT) - streams.kept(streams.ref_logprobs_BT)
    return PENALTIES[estimator](difference_BT.clamp(-LIMIT, LIMIT))
