"""The policy's entropy, and the term that rewards it.

Shapes: V entries of a vocabulary, B sequences, T tokens.
"""

from torch import Tensor

from forethought.learning.aggregation import AGGREGATIONS
from forethought.learning.losses.settings import AggregationName
from forethought.learning.streams import Denominators


def entropy(logprobs: Tensor) -> Tensor:
    """-Σ p log p over the last dimension V, in nats, of log-probabilities at the temperature.

    In the logits that these were made of its gradient is -p (log p + H).

    >>> import torch
    >>> entropy(torch.zeros(1, 4).log_softmax(-1))
    tensor([1.3863])
    """
    return -(logprobs.exp() * logprobs).sum(dim=-1)


def entropy_bonus(
    entropies_BT: Tensor,
    mask_BT: Tensor,
    denominators: Denominators,
    *,
    aggregation: AggregationName,
    coefficient: float,
) -> Tensor:
    """-c Agg(H) over policy tokens, to be added to a policy loss of the same aggregation.

    As in A3C, 1602.01783.
    """
    return -coefficient * AGGREGATIONS[aggregation](entropies_BT, mask_BT, denominators)
