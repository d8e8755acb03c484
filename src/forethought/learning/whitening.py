"""Mean 0 and deviation 1 over tokens: the last step of several advantages. Plain numbers."""

import math
from collections.abc import Sequence

LEAST = 1e-8
"""What keeps a variance from 0."""


def whitening_scale(variance: float, ddof: int) -> float:
    """The divisor of two published implementations: `ddof = 1` adds 1e-8, `ddof = 0` clamps.

    >>> whitening_scale(0.0, 0)
    0.0001
    """
    return math.sqrt(variance + LEAST if ddof else max(variance, LEAST))


def whitened(values: Sequence[float], lengths: Sequence[float], ddof: int = 1) -> list[float]:
    """One value an attempt, whitened over the tokens that carry it; `lengths` in policy tokens.

    Zeros where there are too few tokens for a variance.

    >>> [round(value, 3) for value in whitened([1.0, 0.0], [2.0, 2.0], ddof=0)]
    [1.0, -1.0]
    """
    tokens = math.fsum(lengths)
    if tokens <= ddof:
        return [0.0] * len(values)
    weighted = list(zip(values, lengths, strict=True))
    mean = math.fsum(value * length for value, length in weighted) / tokens
    squares = math.fsum(length * (value - mean) ** 2 for value, length in weighted)
    scale = whitening_scale(squares / (tokens - ddof), ddof)
    return [(value - mean) / scale for value in values]
