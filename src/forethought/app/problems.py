"""Where a run's problems come from, and how the training side is divided.

Problems of the pilot, of collection and of difficulty measurement never overlap; held-out
problems come from another split altogether.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.core.settings import Settings
from forethought.tasks.files import file_problems
from forethought.tasks.gsm8k import gsm8k_problems
from forethought.tasks.practice.problems import practice_problems
from forethought.tasks.settings import PracticeSettings


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


class FileProblems(Settings):
    """Your own problems: JSON lines with `prompt` and `answer`."""

    type: Literal["file"]
    train: str
    """File of the training side."""
    held_out: str
    """File of the exams."""


ProblemSettings = Annotated[
    PracticeProblems | GSM8KProblems | FileProblems, Field(discriminator="type")
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


def training_side(settings: ProblemSettings, division: Division, seed: int) -> TrainingSide:
    """The training problems. Raises `RecipeError` when there are too few."""
    later = division.pilot + division.measure
    if isinstance(settings, PracticeProblems):
        seed = derive_seed(seed, "practice")
        first = _practice(settings, "train", later, seed, settings.hard_later)
        taken = {problem.id for problem in first}
        more = _practice(settings, "train", division.collect + later, seed + 1, settings.hard)
        found = [*first, *(problem for problem in more if problem.id not in taken)]
    else:
        found = _read(settings, settings.train)
    wanted = later + division.collect
    if len(found) < wanted:
        raise RecipeError(
            f"problems: {len(found)} on the training side, but pilot, measure and collect take "
            f"{division.pilot} + {division.measure} + {division.collect}; lower those numbers or "
            "add problems"
        )
    return TrainingSide(
        pilot=tuple(found[: division.pilot]),
        measure=tuple(found[division.pilot : later]),
        collect=tuple(found[later:wanted]),
    )


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


def _read(settings: GSM8KProblems | FileProblems, name: str) -> list[Problem]:
    read = gsm8k_problems if isinstance(settings, GSM8KProblems) else file_problems
    return read(Path(name))
