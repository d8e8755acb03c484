"""Two exams on the same problems: is the second better, and on which problems?

Pairs by problem, because the problems' own difficulty is most of the spread. Does not cover
comparing at several k.
"""

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from forethought.core.errors import RecipeError
from forethought.evaluation.estimators import average, pass_at
from forethought.evaluation.intervals import Z95, standard_error, wilson_interval
from forethought.evaluation.results import Estimate, ExamResult, ProblemResult

What = Literal["average", "greedy", "coverage"]
_SAME = 1e-9
"""Differences this close are equal: rates of k attempts are rounded."""


def paired_difference(before: ExamResult, after: ExamResult, what: What) -> Estimate:
    """How much `after` is above `before` on the problems that both measured.

    The mean difference with the interval of paired samples, sd(difference) / sqrt(N) (Miller,
    arXiv 2411.00640, section 4). Where all differences are equal, their spread says nothing and
    `_without_spread` stands in. One common problem says nothing about others: the interval is
    then [-1, 1]. Raises `RecipeError` when the exams' settings differ or no problem is common.
    """
    _refuse_other_settings(before, after)
    earlier, later = _scores(before, what), _scores(after, what)
    common = [problem for problem in earlier if problem in later]
    if not common:
        raise RecipeError(
            f"exams {before.name} and {after.name} have no measured problem in common "
            f"({len(earlier)} and {len(later)}): sit both on the same problems"
        )
    differences = [later[problem] - earlier[problem] for problem in common]
    mean = fmean(differences)
    if len(differences) == 1:
        return Estimate(value=mean, low=-1.0, high=1.0)
    if max(differences) - min(differences) < _SAME:
        return _without_spread(mean, len(differences))
    reach = Z95 * standard_error(differences)
    return Estimate(value=mean, low=max(-1.0, mean - reach), high=min(1.0, mean + reach))


def _without_spread(difference: float, n: int) -> Estimate:
    """The interval of a difference that all n problems share.

    Of the problems that were not asked, a share up to Wilson's bound for 0 of n may differ
    otherwise, and each of them by anything from -1 to 1.
    """
    others = wilson_interval(0, n).high
    return Estimate(
        value=difference,
        low=difference - others * (1 + difference),
        high=difference + others * (1 - difference),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Ids of the common problems by who solved them at least once in k attempts.

    "Not once in n" is weak evidence of "never": a rate up to 1 - 0.05^(1/n) remains plausible.
    """

    both: tuple[str, ...]
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    neither: tuple[str, ...]


def solved(before: ExamResult, after: ExamResult) -> Solved:
    """What stayed solved, what was lost, what was gained, and what neither solved.

    Raises `RecipeError` when the exams' settings differ.
    """
    _refuse_other_settings(before, after)
    later = {problem.id: problem.c > 0 for problem in after.problems}
    common = [problem for problem in before.problems if problem.id in later]

    def where(earlier_right: bool, later_right: bool) -> tuple[str, ...]:
        wanted = (earlier_right, later_right)
        return tuple(p.id for p in common if (p.c > 0, later[p.id]) == wanted)

    return Solved(
        both=where(True, True),
        lost=where(True, False),
        gained=where(False, True),
        neither=where(False, False),
    )


def _scores(exam: ExamResult, what: What) -> dict[str, float]:
    found = ((problem.id, _score(problem, exam.attempts, what)) for problem in exam.problems)
    return {name: score for name, score in found if score is not None}


def _score(problem: ProblemResult, k: int, what: What) -> float | None:
    match what:
        case "average":
            return average(problem.n, problem.c)
        case "greedy":
            return None if problem.greedy is None else float(problem.greedy)
        case "coverage":
            return pass_at(k, problem.n, problem.c) if problem.n >= k else None


def _refuse_other_settings(before: ExamResult, after: ExamResult) -> None:
    first = {"attempts": before.attempts, **before.settings}
    second = {"attempts": after.attempts, **after.settings}
    for key in sorted(first.keys() | second.keys()):
        if first.get(key) != second.get(key):
            raise RecipeError(
                f"exams {before.name} and {after.name} cannot be compared: {key} is "
                f"{first.get(key)} in one and {second.get(key)} in the other; "
                "sit both with the same settings"
            )
