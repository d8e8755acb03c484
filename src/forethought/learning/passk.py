"""Advantages that train pass@k instead of pass@1: pure numbers, no groups, no tensors."""

import math
from collections.abc import Sequence


def passk_advantages(size: int, right: int, k: int, epsilon: float) -> tuple[float, float]:
    """What a right and a wrong attempt get when every draw of `k` among `size` is one score.

    A draw scores 1 if any attempt in it is right. An attempt gets the mean advantage of the draws
    that hold it, over all draws without replacement (Pass@k Training, 2508.10751). Both are 0
    where no draw can fail or none can succeed. With k = 1 it is GRPO with the population deviation.

    >>> passk_advantages(4, 2, 1, 0.0)
    (1.0, -1.0)
    """
    wrong = size - right
    if wrong < k or right == 0:
        return 0.0, 0.0
    rate = 1.0 - math.comb(wrong, k) / math.comb(size, k)
    scale = math.sqrt(rate * (1.0 - rate)) + epsilon
    helped = 1.0 - math.comb(wrong - 1, k - 1) / math.comb(size - 1, k - 1)
    return (1.0 - rate) / scale, (helped - rate) / scale


def lead(rewards: Sequence[float]) -> list[float]:
    """The best attempt gets how far it is ahead of the second, the others nothing (2503.19595).

    >>> lead([1.0, 4.0, 2.0])
    [0.0, 2.0, 0.0]
    """
    best = max(range(len(rewards)), key=rewards.__getitem__)
    second = max((reward for place, reward in enumerate(rewards) if place != best), default=0.0)
    return [reward - second if place == best else 0.0 for place, reward in enumerate(rewards)]
