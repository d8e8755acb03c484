"""The policy's entropy, and the term that rewards it.

Shapes: V entries of a vocabulary, B sequences, T tokens.
"""

import torch
from torch import Tensor

from forethought.learning.aggregation import AGGREGATIONS
from forethought.learning.losses.settings import AggregationName
from forethought.learning.streams import Denominators


def entropy(logits: Tensor) -> Tensor:
    """logsumexp(z) - Σ softmax(z) z over the last dimension V, in nats; float32 or wider.

    Its gradient is -p (log p + H). Logits are finite and already divided by the temperature.

    >>> entropy(torch.zeros(1, 4))
    tensor([1.3863])
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.logsumexp(dim=-1) - (logits.softmax(dim=-1) * logits).sum(dim=-1)


def entropy_bonus(
    entropies_BT: Tensor,
    mask_BT: Tensor,
    denominators: Denominators,
    *,
    aggregation: AggregationName,
    coefficient: float,
) -> Tensor:
    """-c Agg(H) over policy tokens, to be added to a policy loss of the same aggregation."""
    return -coefficient * AGGREGATIONS[aggregation](entropies_BT, mask_BT, denominators)
