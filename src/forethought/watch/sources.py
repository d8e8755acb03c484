"""Where a change of sampled accuracy comes from: calling more often, or being right more often.

An accounting of what changed, not a claim about causes: a model that calls on other problems
than before also changes its accuracy with the tool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forethought.core.trajectory import Episode, Group
from forethought.evaluation.results import Estimate

_DRAWS = 4000
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A change of accuracy in parts that add up to it, each with its 95 % interval.

    With rate r and accuracy w with and o without the tool, accuracy is rw + (1-r)o; each part is
    the change of one factor times the mean of the others.
    """

    reaching: Estimate
    with_tool: Estimate
    without_tool: Estimate

    @property
    def total(self) -> float:
        """The whole change."""
        return self.reaching.value + self.with_tool.value + self.without_tool.value


def sources(before: Sequence[Group], after: Sequence[Group]) -> Sources | None:
    """Split the change between sampled attempts at the problems that both exams measured.

    Where one exam has no attempt with (or without) the tool, the other's accuracy stands in: that
    part is then zero. The intervals are a percentile bootstrap over problems, drawn in pairs.
    None where fewer than two problems are common: they have no spread.
    """
    first, second = _counts(before), _counts(after)
    common = [problem for problem in first if problem in second]
    if len(common) < 2:
        return None
    counts_P8 = np.asarray([first[problem] + second[problem] for problem in common], np.float64)
    shares = np.full(len(common), 1 / len(common))
    times_DP = np.random.default_rng(0).multinomial(len(common), shares, size=_DRAWS)
    values_3 = _parts(counts_P8.sum(axis=0, keepdims=True))[0]
    lows_3, highs_3 = np.quantile(_parts(times_DP @ counts_P8), (0.025, 0.975), axis=0)
    reaching, with_tool, without_tool = (
        Estimate(value=float(value), low=float(low), high=float(high))
        for value, low, high in zip(values_3, lows_3, highs_3, strict=True)
    )
    return Sources(reaching=reaching, with_tool=with_tool, without_tool=without_tool)


def _counts(groups: Sequence[Group]) -> dict[str, tuple[int, ...]]:
    """Each problem's attempts with a call, those of them right; without one, those right."""
    return {group.problem.id: _tally(group.measured) for group in groups if group.measured}


def _tally(attempts: Sequence[Episode]) -> tuple[int, ...]:
    called = [one.right for one in attempts if any(each.replies for each in one.trajectories)]
    right = sum(one.right for one in attempts)
    return len(called), sum(called), len(attempts) - len(called), right - sum(called)


def _parts(counts_D8: _Floats) -> _Floats:
    """The three parts of each row: four sums of the first exam, then four of the second."""
    rate_D, with_D, without_D = _factors(counts_D8[:, :4])
    later_rate_D, later_with_D, later_without_D = _factors(counts_D8[:, 4:])
    with_D, later_with_D = _paired(with_D, later_with_D)
    without_D, later_without_D = _paired(without_D, later_without_D)
    mean_rate_D = (rate_D + later_rate_D) / 2
    gap_D = (with_D + later_with_D - without_D - later_without_D) / 2
    reaching_D = (later_rate_D - rate_D) * gap_D
    with_part_D = (later_with_D - with_D) * mean_rate_D
    without_part_D = (later_without_D - without_D) * (1 - mean_rate_D)
    return np.stack([reaching_D, with_part_D, without_part_D], axis=1)


def _factors(sums_D4: _Floats) -> tuple[_Floats, _Floats, _Floats]:
    """Rate of calling, accuracy with and accuracy without a call; NaN where nothing is counted."""
    called_D, right_called_D, plain_D, right_plain_D = sums_D4.T
    return (
        called_D / (called_D + plain_D),
        _share(right_called_D, called_D),
        _share(right_plain_D, plain_D),
    )


def _share(part_D: _Floats, whole_D: _Floats) -> _Floats:
    return np.divide(part_D, whole_D, out=np.full_like(whole_D, np.nan), where=whole_D > 0)


def _paired(first_D: _Floats, second_D: _Floats) -> tuple[_Floats, _Floats]:
    """Each, with the other standing in where it is unknown, and 0 where both are."""
    one_D = np.where(np.isnan(first_D), second_D, first_D)
    other_D = np.where(np.isnan(second_D), first_D, second_D)
    return np.nan_to_num(one_D), np.nan_to_num(other_D)
