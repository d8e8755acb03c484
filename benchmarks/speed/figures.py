"""What was measured, and the arithmetic on it: medians, spreads, ratios within a round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One subject measured once in one case.

    `figures` are numbers with their units in their names; `facts` is what else is to be known.
    """

    subject: str
    case: str
    round: int
    figures: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of some values, with the least and the greatest of them.

    >>> Spread.of([3.0, 1.0, 2.0])
    Spread(middle=2.0, least=1.0, greatest=3.0, count=3)
    """

    middle: float
    least: float
    greatest: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """The spread of `values`; None where there are none."""
        found = sorted(values)
        if not found:
            return None
        return cls(middle=median(found), least=found[0], greatest=found[-1], count=len(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a value comes from: a subject's figure in one case, or two of its figures divided.

    `scale` turns it into the unit that it is shown in.
    """

    subject: str
    case: str
    figure: str
    per: str = ""
    scale: float = 1.0

    def read(self, trial: Trial) -> float | None:
        """The value that `trial` holds; None where it is another subject's or has no figure."""
        if (trial.subject, trial.case) != (self.subject, self.case):
            return None
        value = trial.figures.get(self.figure)
        divisor = trial.figures.get(self.per) if self.per else 1.0
        return self.scale * value / divisor if value is not None and divisor else None


def values(trials: Sequence[Trial], source: Source) -> dict[int, float]:
    """The value of every round that has one."""
    found = {trial.round: source.read(trial) for trial in trials if source.read(trial) is not None}
    return {number: value for number, value in found.items() if value is not None}


def ratios(trials: Sequence[Trial], above: Source, below: Source) -> Spread | None:
    """`above` divided by `below`, round by round: a machine's moods touch both alike."""
    upper, lower = values(trials, above), values(trials, below)
    both = sorted(set(upper) & set(lower))
    return Spread.of(upper[number] / lower[number] for number in both if lower[number])


def spread(trials: Sequence[Trial], source: Source) -> Spread | None:
    """The spread of one value over the rounds."""
    return Spread.of(values(trials, source).values())


def in_turns(subjects: Sequence[T], rounds: int) -> list[tuple[int, T]]:
    """Who is measured when: in every round all subjects, the other way round in every second.

    >>> in_turns(["a", "b"], 2)
    [(0, 'a'), (0, 'b'), (1, 'b'), (1, 'a')]
    """
    return [
        (number, subject)
        for number in range(rounds)
        for subject in (subjects if number % 2 == 0 else subjects[::-1])
    ]


def quantiles(numbers: Sequence[float], shares: Sequence[float]) -> list[float]:
    """The values below which these shares of `numbers` lie, taken from among them."""
    ranked = sorted(numbers)
    if not ranked:
        return []
    return [ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in shares]
