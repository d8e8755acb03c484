"""What the runs of a study came to, read from their journals and put together over seeds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Literal

from forethought.core.errors import RecipeError
from forethought.evaluation.intervals import SeedMean, over_seeds
from forethought.evaluation.results import ExamResult
from forethought.journal.run import Run
from forethought.watch.exams import read_exam

Series = Sequence[tuple[int, float]]
"""(round, value), by round, counted from 0."""
Rounds = int | Literal["not reached", "not measured"]
"""How many rounds something took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run: the exams on either side of RL, and the figures of its rounds."""

    seed: int
    before: ExamResult
    after: ExamResult
    accuracy: Series
    """Of a round's measured attempts."""
    entropy: Series
    """Nats a token, of a round's sampled tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure of an exam, and the values between which it lies."""

    title: str
    of: Callable[[ExamResult], float]
    most: float


MEASURES: dict[str, Measure] = {
    "average": Measure(title="avg@k", of=lambda exam: exam.average.value, most=1.0),
    "greedy": Measure(title="greedy", of=lambda exam: exam.greedy.value, most=1.0),
    "calls": Measure(
        title="tool calls an attempt", of=lambda exam: exam.sampled_tools.calls, most=inf
    ),
    "entropy": Measure(title="entropy, nats a token", of=lambda exam: exam.entropy, most=inf),
}
"""What is told of an exam over seeds; none is below 0."""


def read_outcome(path: Path, seed: int) -> Outcome:
    """What the finished run in a folder came to. Raises `RecipeError` where there is none."""
    with Run.read(path) as run:
        return Outcome(
            seed=seed,
            before=_exam(run, "before"),
            after=_exam(run, "after"),
            accuracy=_finite(run.series("rl", "accuracy")),
            entropy=_finite(run.series("rl", "entropy")),
        )


def exam_over_seeds(exams: Sequence[ExamResult], measure: Measure) -> SeedMean:
    """A figure of one exam a seed."""
    return over_seeds([measure.of(exam) for exam in exams], least=0.0, most=measure.most)


def smoothed(series: Series, window: int) -> list[tuple[int, float]]:
    """The mean of each value and those before it, `window` in all, or as many as there are.

    >>> smoothed([(0, 0.0), (1, 1.0), (2, 0.5)], 2)
    [(0, 0.0), (1, 0.5), (2, 0.75)]
    """
    values = [value for _, value in series]
    return [
        (at, fmean(values[max(0, place + 1 - window) : place + 1]))
        for place, (at, _) in enumerate(series)
    ]


def rounds_to(level: float, series: Series, window: int) -> Rounds:
    """After how many rounds the mean of the last `window` measured ones was at `level` or above.

    >>> rounds_to(0.7, [(0, 0.9), (1, 0.4), (2, 1.0)], 2), rounds_to(0.9, [(0, 0.5)], 1)
    (3, 'not reached')
    """
    whole = smoothed(series, window)[window - 1 :]
    if not whole:
        return "not measured"
    reached = [at + 1 for at, mean in whole if mean >= level]
    return reached[0] if reached else "not reached"


def rounds_over_seeds(rounds: Sequence[Rounds]) -> SeedMean | str:
    """The mean where every seed got there; otherwise in words how many did, and after how many.

    A mean of those that got there would leave out the slowest.

    >>> rounds_over_seeds([12, "not reached", 40]), rounds_over_seeds(["not reached"])
    ('in 2 of 3 seeds (12, 40)', 'not reached')
    """
    reached = [one for one in rounds if isinstance(one, int)]
    if len(reached) == len(rounds):
        return over_seeds(reached, least=0.0)
    if not reached:
        return " / ".join(sorted({str(one) for one in rounds}))
    return f"in {len(reached)} of {len(rounds)} seeds ({', '.join(map(str, reached))})"


def _exam(run: Run, name: str) -> ExamResult:
    stage = f"eval_{name}"
    if f"exam/{name}" not in run.documents(stage):
        raise RecipeError(
            f"{run.path} has no exam {name} yet: the same study command goes on with it"
        )
    return read_exam(run, stage, name)


def _finite(series: Series) -> Series:
    return [(at, value) for at, value in series if math.isfinite(value)]
