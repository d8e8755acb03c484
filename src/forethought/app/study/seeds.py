"""Means over seeds, with 95 % intervals by Student's t.

A run is one draw of all that a seed decides, and there are few of them: the normal interval would
be far too narrow. Says nothing of other problems: intervals over problems are in `evaluation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import atan, cos, inf, isclose, pi, sin, sqrt, tan
from operator import mul
from statistics import fmean, stdev


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """A mean over seeds; without an interval where the seeds cannot give one.

    >>> f"{SeedMean(mean=0.5, low=0.4, high=0.6)}", f"{SeedMean(mean=0.5):+.1f}"
    ('0.500 [0.400, 0.600]', '+0.5')
    """

    mean: float
    low: float | None = None
    high: float | None = None

    def __format__(self, spec: str) -> str:
        number = spec or ".3f"
        if self.low is None or self.high is None:
            return format(self.mean, number)
        ends = f"{format(self.low, number)}, {format(self.high, number)}"
        return f"{format(self.mean, number)} [{ends}]"


def over_seeds(values: Sequence[float], least: float = -inf, most: float = inf) -> SeedMean:
    """The mean of one value a seed, its interval cut to what is possible, from `least` to `most`.

    One seed has no interval, nor have seeds that all came to the same: their spread says nothing.

    >>> f"{over_seeds([0.5, 0.6, 0.7])}", f"{over_seeds([0.5])}"
    ('0.600 [0.352, 0.848]', '0.500')
    """
    mean = fmean(values)
    if len(values) == 1 or max(values) == min(values):
        return SeedMean(mean=mean)
    reach = t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))
    return SeedMean(mean=mean, low=max(least, mean - reach), high=min(most, mean + reach))


def t_quantile(freedom: int) -> float:
    """Student's t that 95 % of draws do not exceed in size, at so many degrees of freedom.

    >>> round(t_quantile(1), 3), round(t_quantile(4), 3)
    (12.706, 2.776)
    """
    low, high = 0.0, pi / 2
    while not isclose(low, high, rel_tol=1e-14):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return tan(high) * sqrt(freedom)


def t_share(t: float, freedom: int) -> float:
    """The chance that a draw of Student's t does not exceed `t` >= 0 in size."""
    return _within(atan(t / sqrt(freedom)), freedom)


def _within(angle: float, freedom: int) -> float:
    """The same for t = tan(angle) sqrt(freedom): finite sums (Abramowitz and Stegun, 26.7.3-4)."""
    odd = freedom % 2
    ratios = ((k - 1) / k * cos(angle) ** 2 for k in range(2 + odd, freedom - 1, 2))
    first = cos(angle) if odd else 1.0
    terms = sum(accumulate(ratios, mul, initial=first)) if freedom > 1 else 0.0
    return 2 / pi * (angle + sin(angle) * terms) if odd else sin(angle) * terms
