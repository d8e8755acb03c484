"""95 % intervals and standard errors. Problems, not attempts, are the sampling unit.

After Miller, arXiv 2411.00640. Scores are one number a problem, in [0, 1]. Where every score is
0, or every score is 1, their spread says nothing and Wilson's interval stands in for it. One
problem alone says nothing about others: its interval is [0, 1].

Over seeds the unit is a run: one draw of all that a seed decides. There are few of them, so that
the normal interval would be far too narrow, and Student's t takes its place.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, starmap
from math import atan, cos, fsum, inf, isclose, pi, sin, sqrt, tan
from operator import mul, sub
from statistics import NormalDist, fmean, stdev

import numpy as np

from forethought.evaluation.results import Estimate

Z95 = NormalDist().inv_cdf(0.975)
_BLOCK = 1_000_000


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


def normal_interval(scores: Sequence[float]) -> Estimate:
    """The mean of the scores with its normal-theory interval, cut to [0, 1]."""
    if (plain := _without_spread(scores)) is not None:
        return plain
    mean, reach = fmean(scores), Z95 * standard_error(scores)
    return Estimate(value=mean, low=max(0.0, mean - reach), high=min(1.0, mean + reach))


def wilson_interval(right: int, n: int) -> Estimate:
    """A rate of single attempts, `right` of n, with Wilson's score interval.

    >>> str(wilson_interval(22, 30))
    '0.733 [0.556, 0.858]'
    """
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"a rate needs 0 <= right <= n and n >= 1, got right={right}, n={n}")
    rate, z2 = right / n, Z95**2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    reach = Z95 * sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Estimate(value=rate, low=max(0.0, centre - reach), high=min(1.0, centre + reach))


def bootstrap_interval(scores: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> Estimate:
    """The mean of the scores with a percentile interval: problems are drawn with replacement.

    For pass@k and maj@k, whose scores pile up at 0 and 1. Each problem keeps its own score.
    """
    if (plain := _without_spread(scores)) is not None:
        return plain
    values, generator = np.asarray(scores, dtype=np.float64), np.random.default_rng(seed)
    rows = max(1, _BLOCK // len(values))
    means = np.concatenate(
        [
            values[
                generator.integers(len(values), size=(min(rows, draws - start), len(values)))
            ].mean(axis=1)
            for start in range(0, draws, rows)
        ]
    )
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(value=fmean(scores), low=float(low), high=float(high))


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


def standard_error(scores: Sequence[float]) -> float:
    """The standard error of the mean over problems: sd (ddof 1) / sqrt(N). Needs N >= 2."""
    return stdev(scores) / sqrt(len(scores))


def paired_standard_error(first: Sequence[float], second: Sequence[float]) -> float:
    """The standard error of the mean difference of two scores of the same problems."""
    return standard_error(list(starmap(sub, zip(first, second, strict=True))))


def clustered_standard_error(scores: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Miller's clustered standard error, for problems that come in related families.

    It adds the products of different members of a cluster to the squared plain error: members
    that fare alike widen it, members that balance each other narrow it.
    """
    deviations = _by_cluster(scores, clusters)
    cross = fsum(fsum(members) ** 2 - fsum(value**2 for value in members) for members in deviations)
    return sqrt(standard_error(scores) ** 2 + cross / len(scores) ** 2)


def robust_standard_error(scores: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """The CR0 clustered standard error: from the sum of each cluster alone, never negative."""
    deviations = _by_cluster(scores, clusters)
    return sqrt(fsum(fsum(members) ** 2 for members in deviations)) / len(scores)


def _by_cluster(scores: Sequence[float], clusters: Sequence[Hashable]) -> list[list[float]]:
    mean = fmean(scores)
    members: defaultdict[Hashable, list[float]] = defaultdict(list)
    for score, cluster in zip(scores, clusters, strict=True):
        members[cluster].append(score - mean)
    return list(members.values())


def _within(angle: float, freedom: int) -> float:
    """The same for t = tan(angle) sqrt(freedom): finite sums (Abramowitz and Stegun, 26.7.3-4)."""
    odd = freedom % 2
    ratios = ((k - 1) / k * cos(angle) ** 2 for k in range(2 + odd, freedom - 1, 2))
    first = cos(angle) if odd else 1.0
    terms = sum(accumulate(ratios, mul, initial=first)) if freedom > 1 else 0.0
    return 2 / pi * (angle + sin(angle) * terms) if odd else sin(angle) * terms


def _without_spread(scores: Sequence[float]) -> Estimate | None:
    """The interval where the scores' spread cannot give one; None where it can."""
    if not scores:
        raise ValueError("an interval needs the score of one problem at least, got none")
    if len(scores) == 1:
        return Estimate(value=scores[0], low=0.0, high=1.0)
    if all(score in {0.0, 1.0} and score == scores[0] for score in scores):
        return wilson_interval(int(sum(scores)), len(scores))
    return None
