"""How a run stands, in `status.json` beside its journal: for scripts, and for whoever looks later.

Where too many attempts broke for their step to be kept, how they did is in `failure.txt`.

The journal alone decides what is done and where a run goes on; nothing here is read back by it. A
power cut while a command runs may leave an older status, or an empty file.
"""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from forethought.core.errors import ForethoughtError, UnmeasuredError
from forethought.journal.files import explained, replaced, written_beside
from forethought.journal.reading import StageSummary
from forethought.journal.run import STATUS, Run

FAILURE = "failure.txt"
"""In a run's folder: the traceback of an attempt, if the last command ended by such as broke."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a command has come to. `stage` is the one that it is in, was in, or ended with.

    While it is `running`, that is the stage of the last step that it committed, empty before the
    first. `running` is also what a killed process leaves behind: then nobody holds the run's lock.
    Where a full disk kept a status from being written there is no file, and nobody knows.
    `words` are those that the program was started with, the command's name among them.

    >>> Status(state="done", command="rl", stage="rl", completed_steps=3).error
    ''
    """

    state: Literal["running", "done", "stopped", "failed"]
    command: str
    stage: str = ""
    completed_steps: int = 0
    error: str = ""
    words: tuple[str, ...] = ()


def read_status(folder: Path) -> Status:
    """How the run in `folder` stands. Raises what reading a file or JSON raises."""
    found = json.loads((folder / STATUS).read_text(encoding="utf-8"))
    return Status(**found | {"words": tuple(found.get("words", ()))})


@contextmanager
def reported(run: Run, command: str, words: Sequence[str] = ()) -> Generator[None]:
    """Keep the status of `run` while the block does what `command` asks, anew at every step.

    Errors rise as they are, but an `UnmeasuredError` names the file that its traceback is kept in.
    One that is nobody's message ends with a line that names it, its stage and its step.
    """
    with explained(run.path / FAILURE):
        (run.path / FAILURE).unlink(missing_ok=True)
    begun = Status(state="running", command=command, words=tuple(words))
    _write(run, begun)
    try:
        with _trace_kept(run), _followed(run, begun):
            yield
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        _tell_end(run, begun, "failed", what)
        if not isinstance(error, ForethoughtError):
            with suppress(ForethoughtError):
                error.add_note(f"{what} ({_place(_latest(run))})")
        raise
    except BaseException:
        _tell_end(run, begun, "stopped")
        raise
    _write(run, _ended(_latest(run), begun, "done"))


@contextmanager
def _followed(run: Run, begun: Status) -> Generator[None]:
    """Write the status at every step that the block commits.

    It waits for no disk, as a step does that anyhow, and is left out where it cannot be written.
    """

    def tell(stage: str, step: int) -> None:
        status = replace(begun, stage=stage, completed_steps=step + 1)
        with suppress(ForethoughtError, OSError), replaced(run.path / STATUS) as file:
            file.write(_text(status))

    before, run.committed = run.committed, tell
    try:
        yield
    finally:
        run.committed = before


@contextmanager
def _trace_kept(run: Run) -> Generator[None]:
    try:
        yield
    except UnmeasuredError as error:
        if not error.trace:
            raise
        try:
            text = f"{_place(_latest(run))}: {error}\n\n{error.trace}"
            with written_beside(run.path / FAILURE) as file:
                file.write(text.encode(errors="backslashreplace").decode())
        except ForethoughtError:
            raise error from None
        where = f"{error}. The traceback of one that broke is in {run.path / FAILURE}"
        raise UnmeasuredError(where, error.trace) from error


def _tell_end(
    run: Run, begun: Status, state: Literal["stopped", "failed"], error: str = ""
) -> None:
    # What ended the command may also keep its status from being written: it must rise, not this.
    with suppress(ForethoughtError):
        at = None
        with suppress(ForethoughtError):  # a full disk, or a damaged journal, may not be read
            at = _latest(run)
        _write(run, _ended(at, begun, state, error))


def _latest(run: Run) -> StageSummary | None:
    """The stage that is under way, or the one that was begun last."""
    stages = run.stages()
    under_way = [stage for stage in stages if not stage.finished]
    return (under_way or stages or [None])[-1]


def _place(at: StageSummary | None) -> str:
    return "before any stage" if at is None else f"stage {at.name}, step {at.steps}"


def _ended(
    at: StageSummary | None,
    begun: Status,
    state: Literal["done", "stopped", "failed"],
    error: str = "",
) -> Status:
    return replace(
        begun,
        state=state,
        stage="" if at is None else at.name,
        completed_steps=0 if at is None else at.steps,
        error=error,
    )


def _write(run: Run, status: Status) -> None:
    try:
        with written_beside(run.path / STATUS) as file:
            file.write(_text(status))
    except ForethoughtError:
        # What stands there is not true any more, and removing it needs no room on a disk.
        with suppress(OSError):
            (run.path / STATUS).unlink(missing_ok=True)
        raise


def _text(status: Status) -> str:
    return json.dumps(asdict(status), indent=2) + "\n"
