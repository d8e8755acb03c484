"""When a stage of a run is interrupted, and waiting until it is there.

Seen from outside: by the run's folder, its journal, and the processes of the command.
"""

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from forethought.app.context import CALIBRATION as KEPT
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.journal.status import STATUS, read_status

DELAYS = (0.2, 1.0, 2.5)
CALIBRATION = "calibration"
"""The part of a stage in which it finds out who computes fastest."""
CALIBRATED = ("sft", "rl")
"""The stages that are interrupted there."""
INTO_CALIBRATION = (0.0, 0.04, 0.08)
"""Seconds from its beginning."""
SHARES = (0.2, 0.5, 0.8)
"""How much of a part of a step has passed when it is interrupted."""
PARTS = ("attempt", "learn")
"""The parts of a step of RL, in their order, as the journal names their seconds."""
LOOK = 0.005
"""Seconds between looks at a run."""
Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When to interrupt a stage: after `amount` seconds, or in a `part` of it.

    `amount` is then the share of a part of a step that has passed, or seconds of calibration.
    """

    stage: str
    amount: float
    part: str = ""

    @property
    def place(self) -> str:
        """The stage, and the part of it."""
        return f"{self.stage}, {self.part}" if self.part else self.stage

    def __str__(self) -> str:
        return f"{self.amount:.0%} of it" if self.part in PARTS else f"{self.amount:g} s"


def moments_of(stage: str, delays: tuple[float, ...]) -> list[Moment]:
    """The moments at which a stage is interrupted."""
    calibrating = INTO_CALIBRATION if stage in CALIBRATED else ()
    amounts = [(CALIBRATION, seconds) for seconds in calibrating]
    if stage == "rl":
        amounts += [(part, share) for part in PARTS for share in SHARES]
    else:
        amounts += [("", delay) for delay in delays]
    return [Moment(stage=stage, part=part, amount=amount) for part, amount in amounts]


def foretold(moment: Moment, seconds: dict[str, float]) -> float:
    """When a moment of a step comes, in seconds after the step before it, which took `seconds`.

    >>> moment = Moment(stage="rl", part="learn", amount=0.5)
    >>> foretold(moment, {"attempt": 10.0, "learn": 4.0})
    12.0
    """
    before = PARTS[: PARTS.index(moment.part)]
    return sum(seconds[part] for part in before) + moment.amount * seconds[moment.part]


def committed(folder: Path, stage: str) -> int:
    """How many steps of a stage are in the journal."""
    with contextlib.suppress(RecipeError), Run.read(folder) as run:
        return len(run.steps(stage))
    return 0


def last_seconds(folder: Path, stage: str) -> dict[str, float]:
    """How long each part of a stage's last step took."""
    with Run.read(folder) as run:
        return {part: run.series(stage, f"seconds/{part}")[-1][1] for part in PARTS}


def until(truth: Callable[[], bool], process: Process) -> bool:
    """Wait for something; False when the process ended before."""
    while not truth():
        if process.poll() is not None:
            return False
        time.sleep(LOOK)
    return True


def passed(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed from now on."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def is_working(folder: Path) -> bool:
    """Whether a command is between the beginning of its work and its end."""
    return (folder / STATUS).exists() and read_status(folder).state == "running"


def has_come(moment: Moment, process: Process, folder: Path) -> bool:
    """Wait for a moment; False when the work ended before."""
    if not until(lambda: is_working(folder), process):
        return False
    if moment.part == CALIBRATION:
        return is_calibrating(moment.amount, process, folder)
    if not moment.part:
        return until(passed(moment.amount), process) and is_working(folder)
    while until(stepped(folder, moment.stage), process):
        steps = committed(folder, moment.stage)
        due = passed(foretold(moment, last_seconds(folder, moment.stage)))
        if not until(due, process) or not is_working(folder):
            break
        if committed(folder, moment.stage) == steps:  # otherwise that step was shorter
            return True
    return False


def is_calibrating(seconds: float, process: Process, folder: Path) -> bool:
    """Wait until a calibration is so old; False where none is done here, or it was shorter.

    It begins with workers, which are forked and so have their parent's words. Without any, the
    first child is the sandbox. It ends when its result is kept.
    """
    one = psutil.Process(process.pid)
    with contextlib.suppress(psutil.Error):  # a child or the command may end meanwhile
        if until(lambda: bool(one.children()), process) and until(passed(seconds), process):
            forked = any(child.cmdline() == one.cmdline() for child in one.children())
            return forked and not (folder / KEPT).exists()
    return False


def stepped(folder: Path, stage: str) -> Callable[[], bool]:
    """Whether a step has been committed from now on; resuming may take some back first."""
    least = committed(folder, stage)

    def more() -> bool:
        nonlocal least
        now = committed(folder, stage)
        least = min(least, now)
        return now > least

    return more
