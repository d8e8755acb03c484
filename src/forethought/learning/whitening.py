"""Mean 0 and deviation 1 over tokens: the last step of several advantages. Plain numbers."""

import math
from collections.abc import Sequence

SAME = 1e-9
"""Numbers this close are equal. The computed mean of equal floats need not be one of them."""

LEAST = 1e-8
"""What keeps a variance from 0."""


def whitening_scale(variance: float, ddof: int) -> float:
    """The divisor of two published implementations, both of REINFORCE++ (2501.03262).

    With `ddof = 1` 1e-8 is added (verl), with `ddof = 0` the variance is no less (OpenRLHF).

    >>> whitening_scale(0.0, 0)
    0.0001
    """
    return math.sqrt(variance + LEAST if ddof else max(variance, LEAST))


def whitened(values: Sequence[float], lengths: Sequence[float], ddof: int = 1) -> list[float]:
    """One value an attempt, whitened over the tokens that carry it; `lengths` in policy tokens.

    An attempt of length 0 moves neither mean nor variance. Zeros where there are too few tokens for
    a variance, and exactly 0 for what is within `SAME` of the mean.

    >>> [round(value, 3) for value in whitened([1.0, 0.0], [2.0, 2.0], ddof=0)]
    [1.0, -1.0]
    """
    tokens = math.fsum(lengths)
    if tokens <= ddof:
        return [0.0] * len(values)
    weighted = zip(values, lengths, strict=True)
    mean = math.fsum(value * length for value, length in weighted) / tokens
    centred = [0.0 if abs(value - mean) <= SAME else value - mean for value in values]
    squares = math.fsum(n * each**2 for each, n in zip(centred, lengths, strict=True))
    scale = whitening_scale(squares / (tokens - ddof), ddof)
    return [each / scale for each in centred]
