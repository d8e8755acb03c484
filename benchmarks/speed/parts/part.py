"""A part of the benchmark, and the comparisons that its lines are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.speed.figures import Source, Trial, ratios, spread
from benchmarks.speed.rounds import Options, Outcome
from benchmarks.speed.table import Goal, Line

GB = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Something to measure by itself, and to show."""

    name: str
    measure: Callable[[Options], Outcome]
    lines: Callable[[Sequence[Trial]], list[Line]]


def sooner(
    trials: Sequence[Trial], what: str, unit: str, pair: tuple[Source, Source], goal: Goal | None
) -> Line:
    """A line about `pair` (ours, theirs) in which less is better: how many times less we take."""
    ours, theirs = pair
    return replace(share(trials, what, unit, pair, goal), ratio=ratios(trials, theirs, ours))


def share(
    trials: Sequence[Trial], what: str, unit: str, pair: tuple[Source, Source], goal: Goal | None
) -> Line:
    """A line about `pair` (ours, theirs) that shows ours divided by theirs."""
    ours, theirs = pair
    return Line(
        what=what,
        unit=unit,
        ours=spread(trials, ours),
        theirs=spread(trials, theirs),
        ratio=ratios(trials, ours, theirs),
        goal=goal,
    )


def beside(trials: Sequence[Trial], what: str, unit: str, pair: tuple[Source, Source]) -> Line:
    """A line about `pair` (ours, theirs) without a ratio."""
    ours, theirs = (spread(trials, each) for each in pair)
    return Line(what=what, unit=unit, ours=ours, theirs=theirs)
