"""A run on disk: one folder, written by one process, read by everyone.

`journal.sqlite` holds steps, episodes and documents; `recipe.json` the resolved recipe;
`checkpoints/` whatever weights the stages save there.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forethought.core.errors import ForethoughtError, RecipeError
from forethought.core.trajectory import Group
from forethought.journal import reading
from forethought.journal.database import contents, open_reader, open_writer
from forethought.journal.files import (
    damaged,
    explained,
    intact,
    readable,
    remove_left_over,
    written_beside,
)
from forethought.journal.lock import writer_lock
from forethought.journal.reading import StageSummary
from forethought.journal.stage import Stage

JOURNAL = "journal.sqlite"
RECIPE = "recipe.json"
STATUS = "status.json"
_CHECKPOINTS = "checkpoints"
_LOCK = "writer.lock"
_OWN = {JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm", _CHECKPOINTS, _LOCK}
_FAULTS = {"blank": "it is empty", "other": "file is not a database of this program"}


class Run:
    """A run's folder, opened. Close it, or use it as a context.

    A context that is left by a `ForethoughtError` removes a folder that was made for it, if no step
    was committed: what was refused leaves nothing behind.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        resources: ExitStack,
        recipe: Mapping[str, Any],
        made: Sequence[Path] = (),
    ) -> None:
        """`made` are the folders that were made for it, the innermost first."""
        self.path = path
        self.recipe = recipe
        self.committed: Callable[[str, int], None] = _nobody
        """Who is told of each step that is committed from now on, by its stage's name."""
        self._connection = connection
        self._resources = resources
        self._made = made

    @classmethod
    def create_or_open(cls, path: Path, recipe: Mapping[str, Any]) -> Self:
        """Open the run in the folder `path` for writing; make it when there is none.

        Raises `RecipeError` when the folder holds something else or a damaged run, when another
        process writes the run, or when the disk refuses.
        """
        with ExitStack() as resources:
            with explained(path):
                made = [folder for folder in (path, *path.parents) if not folder.exists()]
                path.mkdir(parents=True, exist_ok=True)
                _refuse_foreign(path)
            resources.enter_context(writer_lock(path, _LOCK))
            connection = resources.enter_context(closing(open_writer(path / JOURNAL)))
            with explained(path / _CHECKPOINTS):
                (path / _CHECKPOINTS).mkdir(exist_ok=True)
            with explained(path):
                remove_left_over(path)
            if (path / RECIPE).exists():
                _read_recipe(path)
            else:
                _write_recipe(path, recipe)
            return cls(path, connection, resources.pop_all(), recipe, made)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open the run in the folder `path` for reading only.

        Raises `RecipeError` when there is no run, when this user may not read it, or when its
        recipe is no object in JSON.
        """
        with readable(path):
            whole = (path / JOURNAL).is_file() and (path / RECIPE).is_file()
        if not whole:
            raise RecipeError(
                f"{path} holds no run: name a folder that has {JOURNAL} and {RECIPE} in it"
            )
        with ExitStack() as resources:
            for name in (JOURNAL, RECIPE):
                with readable(path / name), (path / name).open("rb"):
                    pass
            connection = resources.enter_context(closing(open_reader(path / JOURNAL)))
            return cls(path, connection, resources.pop_all(), _read_recipe(path))

    @property
    def checkpoints(self) -> Path:
        """The folder for weights."""
        return self.path / _CHECKPOINTS

    def close(self) -> None:
        """Let go of the folder; what was not committed is lost."""
        self._resources.close()

    def _remove_unless_begun(self) -> None:
        """Remove a folder that was made for this run, and in which no step is kept, nor a file."""
        if not self._made or any(stage.steps or stage.finished for stage in self.stages()):
            return
        names = {entry.name for entry in self.path.iterdir()}
        if not names <= _OWN | {RECIPE, STATUS} or any(self.checkpoints.iterdir()):
            return
        self._connection.close()  # the lock is still held, so that nobody begins a run in here
        shutil.rmtree(self.path)
        for folder in self._made[1:]:
            folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, ForethoughtError):
            with suppress(ForethoughtError, OSError):
                self._remove_unless_begun()
        self.close()

    def stage(self, name: str) -> Stage:
        """The record of the stage called `name`, which need not exist yet."""
        return Stage(
            self._connection, self.path / JOURNAL, name, self._keep_recipe, self._tell_committed
        )

    def stages(self) -> list[StageSummary]:
        """Every stage in the order in which they were begun."""
        with self._intact():
            return reading.read_stages(self._connection)

    def metrics(self, stage: str) -> list[str]:
        """The names of a stage's series, sorted."""
        with self._intact():
            return reading.read_metrics(self._connection, stage)

    def series(self, stage: str, metric: str) -> list[tuple[int, float]]:
        """One series as (step, value), by step; empty where there is none."""
        with self._intact():
            return reading.read_series(self._connection, stage, metric)

    def documents(self, stage: str) -> list[str]:
        """The names of a stage's documents, in the order in which they were first written."""
        with self._intact():
            return reading.read_documents(self._connection, stage)

    def document(self, stage: str, name: str) -> Mapping[str, Any] | None:
        """One document of a stage; None where there is none."""
        with self._intact():
            return reading.read_document(self._connection, stage, name)

    def attempts(self) -> dict[str, int]:
        """How many attempts each stage has kept; one without any is left out."""
        with self._intact():
            return reading.read_attempts(self._connection)

    def steps(self, stage: str) -> list[int]:
        """The committed steps of a stage."""
        with self._intact():
            return reading.read_steps(self._connection, stage)

    def rewards(self, stage: str, step: int) -> dict[str, dict[str, float]]:
        """What attempts of one step earned by component, by the episode's id; NaN is not known.

        An attempt that was not scored (in an exam, say, or not measured) is not among them.
        """
        with self._intact():
            return reading.read_rewards(self._connection, stage, step)

    def groups(self, stage: str, step: int | None = None) -> Iterator[Group]:
        """The groups of one step, or of every step of a stage, as they were kept."""
        for at in self.steps(stage) if step is None else [step]:
            with self._intact():
                yield from reading.read_groups(self._connection, stage, at)

    def _intact(self) -> AbstractContextManager[None]:
        return intact(self.path / JOURNAL)

    def _keep_recipe(self) -> None:
        # Only once a stage has accepted it: a refused recipe must not replace the one that made
        # what is there.
        _write_recipe(self.path, self.recipe)

    def _tell_committed(self, stage: str, step: int) -> None:
        self.committed(stage, step)


def _nobody(stage: str, step: int) -> None:
    """Who is told when nobody listens."""


def _refuse_foreign(path: Path) -> None:
    journal = path / JOURNAL
    if journal.exists():
        found = contents(journal)
        # The recipe is written once the journal has its tables.
        if found != "journal" and (path / RECIPE).is_file():
            raise damaged(journal, _FAULTS[found])
        foreign = [JOURNAL] if found == "other" else []
    else:
        foreign = sorted({entry.name for entry in path.iterdir()} - _OWN)
    if foreign:
        shown = ", ".join(foreign[:3]) + (", …" if len(foreign) > 3 else "")
        raise RecipeError(
            f"{path} holds something that is not a run ({shown}): name an empty or new folder "
            "with --run"
        )


def _read_recipe(path: Path) -> dict[str, Any]:
    """The recipe that is kept in the folder. Raises `RecipeError` where it is damaged."""
    kept = path / RECIPE
    with intact(kept), readable(kept):
        return reading.read_object(kept.read_text(encoding="utf-8"))


def _write_recipe(path: Path, recipe: Mapping[str, Any]) -> None:
    text = json.dumps(recipe, indent=2, ensure_ascii=False, default=str) + "\n"
    written = path / RECIPE
    if written.exists() and written.read_bytes() == text.encode():
        return
    with written_beside(written) as file:
        file.write(text)
