"""How hard problems are for the policy at hand, and which of them it can learn from.

A problem that is always or never solved gives no group with a difference in it, hence nothing to
learn from (arXiv 2510.11701, section 3.3). With few attempts a hard problem is often dropped by
bad luck, so what is dropped is kept in the record, for measuring again with a better policy.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.trajectory import Group


class Label(StrEnum):
    """How a problem's pass rate is called; the first and the last are dropped."""

    ALL_RIGHT = "drop_all_correct"
    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"
    ALL_WRONG = "drop_all_wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """Problems by what measuring them found, each kind in the order of the groups.

    `pass_rates` and `labels` are by problem id and hold every problem with a measured attempt.
    """

    pass_rates: Mapping[str, float]
    labels: Mapping[str, Label]
    kept: tuple[Problem, ...]
    dropped_all_right: tuple[Problem, ...]
    dropped_all_wrong: tuple[Problem, ...]
    unmeasured: tuple[Problem, ...]


def label(right: int, measured: int) -> Label:
    """The label of `right` right among `measured` attempts: easy from 3/4, hard up to 1/4.

    >>> label(6, 8), label(2, 8)
    (<Label.EASY: 'easy'>, <Label.HARD: 'hard'>)
    """
    if not 0 <= right <= measured or measured < 1:
        raise ValueError(f"need 0 <= right <= measured and measured >= 1, got {right}, {measured}")
    if right in {0, measured}:
        return Label.ALL_RIGHT if right else Label.ALL_WRONG
    if 4 * right >= 3 * measured:
        return Label.EASY
    return Label.HARD if 4 * right <= measured else Label.MEDIUM


def select(groups: Iterable[Group]) -> Difficulty:
    """Keep the problems that were solved sometimes; groups of one problem are counted together.

    Only measured attempts count. Raises `RecipeError` when no problem is kept.
    """
    problems: dict[str, Problem] = {}
    counts: dict[str, tuple[int, int]] = {}
    for group in groups:
        name = group.problem.id
        right, measured = counts.get(name, (0, 0))
        problems[name] = group.problem
        counts[name] = (
            right + sum(episode.right for episode in group.measured),
            measured + len(group.measured),
        )
    labels = {name: label(*count) for name, count in counts.items() if count[1]}

    def labelled(*wanted: Label | None) -> tuple[Problem, ...]:
        return tuple(problems[name] for name in problems if labels.get(name) in wanted)

    found = Difficulty(
        pass_rates={name: counts[name][0] / counts[name][1] for name in labels},
        labels=labels,
        kept=labelled(Label.EASY, Label.MEDIUM, Label.HARD),
        dropped_all_right=labelled(Label.ALL_RIGHT),
        dropped_all_wrong=labelled(Label.ALL_WRONG),
        unmeasured=labelled(None),
    )
    if not found.kept:
        raise RecipeError(_nothing_kept(found))
    return found


def quotas(total: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Share `total` places out by weight with the method of the largest remainder.

    >>> quotas(64, (0.3, 0.5, 0.2))
    (19, 32, 13)
    """
    if total < 0 or not weights or min(weights) < 0 or not sum(weights):
        raise ValueError(f"need total >= 0 and weights of which one is positive, got {weights}")
    exact = [total * weight / sum(weights) for weight in weights]
    places = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda kind: places[kind] - exact[kind])
    for kind in by_remainder[: total - sum(places)]:
        places[kind] += 1
    return tuple(places)


def _nothing_kept(found: Difficulty) -> str:
    right, wrong = len(found.dropped_all_right), len(found.dropped_all_wrong)
    if right > wrong:
        remedy = "give harder problems"
    elif wrong:
        remedy = "give easier problems, train the policy longer before, or attempt each more often"
    else:
        remedy = "repair the infrastructure and measure again"
    return (
        f"no problem is left to learn from: {right} {'was' if right == 1 else 'were'} always "
        f"solved, {wrong} never, {len(found.unmeasured)} not measured; {remedy}"
    )
