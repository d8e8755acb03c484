"""95 % intervals and standard errors. Problems, not attempts, are the sampling unit.

After Miller, arXiv 2411.00640. Scores are one number a problem, in [0, 1]. Where every score is
0, or every score is 1, their spread says nothing and Wilson's interval stands in for it. One
problem alone says nothing about others: its interval is [0, 1].
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import starmap
from math import fsum, sqrt
from operator import sub
from statistics import NormalDist, fmean, stdev

import numpy as np

from forethought.evaluation.results import Estimate

Z95 = NormalDist().inv_cdf(0.975)
_BLOCK = 1_000_000


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


def _without_spread(scores: Sequence[float]) -> Estimate | None:
    """The interval where the scores' spread cannot give one; None where it can."""
    if not scores:
        raise ValueError("an interval needs the score of one problem at least, got none")
    if len(scores) == 1:
        return Estimate(value=scores[0], low=0.0, high=1.0)
    if all(score in {0.0, 1.0} and score == scores[0] for score in scores):
        return wilson_interval(int(sum(scores)), len(scores))
    return None
