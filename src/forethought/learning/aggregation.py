"""From a loss per token to one number: five modes, exact under any split into micro-batches.

A mode sums what it is given and divides by `Denominators` of the whole optimiser step. A sequence
must not be divided between micro-batches. Without a single policy token the result is a 0 that
still belongs to the graph, so that every worker runs the same backward pass.

Shapes: B sequences, T tokens.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from forethought.learning.losses.settings import AggregationName
from forethought.learning.streams import Denominators

Aggregation = Callable[[Tensor, Tensor, Denominators], Tensor]


def token_sum(per_token_BT: Tensor, mask_BT: Tensor, denominators: Denominators) -> Tensor:
    """The plain sum over policy tokens."""
    return torch.where(mask_BT, per_token_BT, 0.0).sum()


def token_mean(per_token_BT: Tensor, mask_BT: Tensor, denominators: Denominators) -> Tensor:
    """Every policy token weighs the same, whatever its sequence (DAPO, 2503.14476, eq. 8)."""
    return token_sum(per_token_BT, mask_BT, denominators) / (denominators.tokens or 1.0)


def sequence_mean_token_mean(
    per_token_BT: Tensor, mask_BT: Tensor, denominators: Denominators
) -> Tensor:
    """Every sequence weighs the same, whatever its length (GRPO, 2402.03300)."""
    sums_B = torch.where(mask_BT, per_token_BT, 0.0).sum(dim=1)
    means_B = sums_B / mask_BT.sum(dim=1).clamp(min=1)
    return means_B.sum() / (denominators.sequences or 1.0)


def sequence_mean_token_sum(
    per_token_BT: Tensor, mask_BT: Tensor, denominators: Denominators
) -> Tensor:
    """The mean over sequences of their sums: the score of whole attempts (RLOO, 2402.14740)."""
    return token_sum(per_token_BT, mask_BT, denominators) / (denominators.sequences or 1.0)


def sequence_mean_token_sum_norm(
    per_token_BT: Tensor, mask_BT: Tensor, denominators: Denominators
) -> Tensor:
    """As above, over a constant length (Dr. GRPO, 2503.20783).

    Raises ValueError without `denominators.budget`.
    """
    if not denominators.budget:
        raise ValueError(
            f"seq-mean-token-sum-norm divides by a budget, got {denominators.budget}: "
            "give Denominators the completion limit"
        )
    return sequence_mean_token_sum(per_token_BT, mask_BT, denominators) / denominators.budget


AGGREGATIONS: dict[AggregationName, Aggregation] = {
    "token-mean": token_mean,
    "token-sum": token_sum,
    "seq-mean-token-mean": sequence_mean_token_mean,
    "seq-mean-token-sum": sequence_mean_token_sum,
    "seq-mean-token-sum-norm": sequence_mean_token_sum_norm,
}
