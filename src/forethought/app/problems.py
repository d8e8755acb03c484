"""Where a run's problems come from, and how the training side is divided.

The pilot, collection and difficulty measurement never share a question; held-out problems come
from another split altogether.
"""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.core.settings import Settings
from forethought.tasks.code import code_problems
from forethought.tasks.files import file_problems
from forethought.tasks.gsm8k import calculations, gsm8k_problems
from forethought.tasks.practice.problems import practice_problems
from forethought.tasks.settings import PracticeSettings

_LOG = logging.getLogger(__name__)


class PracticeProblems(PracticeSettings):
    """The embedded practice set."""

    type: Literal["practice"]
    hard_later: float = Field(default=0.6, ge=0.0, le=1.0)
    """The share of problems with large parameters after collection: pilot, measure, RL, exams."""


class GSM8KProblems(Settings):
    """GSM8K files (JSON lines with `question` and `answer`, optionally gzipped)."""

    type: Literal["gsm8k"]
    train: str
    """File of the training side."""
    held_out: str
    """File of the exams."""
    most_calculations: int = Field(default=0, ge=0)
    """Only problems whose marked solution has at most this many calculations; 0 takes all."""


class FileProblems(Settings):
    """Your own problems: JSON lines with `prompt` and `answer`."""

    type: Literal["file"]
    train: str
    """File of the training side."""
    held_out: str
    """File of the exams."""


class CodeProblems(Settings):
    """Problems whose answer is a program: files as of MBPP, HumanEval or LiveCodeBench."""

    type: Literal["code"]
    train: str
    """File of the training side."""
    held_out: str
    """File of the exams."""
    shown_tests: int = Field(default=1, ge=0)
    """Of the tests in a `test_list`, how many the question shows: the first. What is shown can be
    answered by heart."""
    uncheckable: Literal["refuse", "leave_out"] = "refuse"
    """What becomes of rows with a test whose expected value could not be kept from the program: a
    file with such rows is refused, or they are left out, which is said with their number."""


ProblemSettings = Annotated[
    PracticeProblems | GSM8KProblems | FileProblems | CodeProblems, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How many problems of the training side each purpose takes."""

    pilot: int
    measure: int
    collect: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSide:
    """The training problems by purpose."""

    pilot: tuple[Problem, ...]
    measure: tuple[Problem, ...]
    collect: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Problems in a fixed order: `first(n)` gives n of them, or all there are.

    Problems with one `question` ask the same, however they are called.
    """

    first: Callable[[int], list[Problem]]
    question: Callable[[Problem], Hashable]

    def take(self, count: int, taken: set[Hashable]) -> tuple[Problem, ...]:
        """The first `count` problems (fewer where they end) whose questions are not `taken`.

        Their questions are then added to `taken`.
        """
        extra = len(taken)
        while True:
            offered = self.first(count + extra)
            found = [each for each in offered if self.question(each) not in taken][:count]
            if len(found) == count or len(offered) < count + extra:
                taken.update(map(self.question, found))
                return tuple(found)
            extra *= 2


def training_side(settings: ProblemSettings, division: Division, seed: int) -> TrainingSide:
    """The training problems, each purpose in turn with questions that none before it took.

    Raises `RecipeError` when there are too few.
    """
    early, late = _sources(settings, seed)
    taken: set[Hashable] = set()
    pilot = early.take(division.pilot, taken)
    measure = early.take(division.measure, taken)
    collect = late.take(division.collect, taken)
    found = len(pilot) + len(measure) + len(collect)
    if found < division.pilot + division.measure + division.collect:
        raise RecipeError(
            f"problems: {found} on the training side, but pilot, measure and collect take "
            f"{division.pilot} + {division.measure} + {division.collect} different ones; lower "
            "those numbers or add problems"
        )
    return TrainingSide(pilot=pilot, measure=measure, collect=collect)


def held_out(settings: ProblemSettings, count: int) -> tuple[Problem, ...]:
    """The problems of the exams: the same for every seed, so that exams can be compared.

    Raises `RecipeError` when there are none.
    """
    if isinstance(settings, PracticeProblems):
        return tuple(_practice(settings, "held_out", count, 0, settings.hard_later))
    found = _read(settings, settings.held_out)
    if not found:
        raise RecipeError(f"problems.held_out = {settings.held_out!r}: the file holds no problem")
    return tuple(found[:count])


def _sources(settings: ProblemSettings, seed: int) -> tuple[Source, Source]:
    """Where pilot and measurement take their problems from, and where collection does."""
    if isinstance(settings, PracticeProblems):
        own = derive_seed(seed, "practice")
        early = partial(_practice, settings, "train", seed=own, hard=settings.hard_later)
        late = partial(_practice, settings, "train", seed=own + 1, hard=settings.hard)
        return (
            Source(first=early, question=_parameters),
            Source(first=late, question=_parameters),
        )
    found = _read(settings, settings.train)
    source = Source(first=lambda count: found[:count], question=lambda problem: problem.prompt)
    return source, source


def _parameters(problem: Problem) -> Hashable:
    """What all wordings of a practice problem share: its program names every parameter.

    In a file a program may be as little as the printing of an answer, and says nothing of that.
    """
    return problem.domain, problem.data["program"]


def _practice(
    settings: PracticeProblems,
    split: Literal["train", "held_out"],
    count: int,
    seed: int,
    hard: float,
) -> list[Problem]:
    return practice_problems(
        PracticeSettings(families=settings.families, hard=hard), split, count, seed
    )


def _read(settings: GSM8KProblems | FileProblems | CodeProblems, name: str) -> list[Problem]:
    if isinstance(settings, FileProblems):
        return file_problems(Path(name))
    if isinstance(settings, CodeProblems):
        return _checkable(settings, name)
    found = gsm8k_problems(Path(name))
    most = settings.most_calculations
    return [problem for problem in found if not most or 0 < calculations(problem) <= most]


def _checkable(settings: CodeProblems, name: str) -> list[Problem]:
    """The problems of a file whose programs can be checked; the others as the settings say."""
    found = code_problems(Path(name), settings.shown_tests)
    if not found.uncheckable:
        return [*found.problems]
    count = f"{len(found.uncheckable)} of {len(found.problems) + len(found.uncheckable)} rows"
    first = found.uncheckable[0]
    if settings.uncheckable == "refuse":
        raise RecipeError(
            f"{name}: {count} cannot be checked (the first: {first}). Mend them, or set "
            'problems.uncheckable = "leave_out"'
        )
    _warn_once(f"{name}: {count} are left out, since they cannot be checked (the first: {first})")
    return [*found.problems]


@cache
def _warn_once(sentence: str) -> None:
    _LOG.warning(sentence)
