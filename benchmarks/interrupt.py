"""Press Ctrl-C in every stage of a run, and take the time until it has ended.

    python -m benchmarks.interrupt                       # the small recipe, some minutes
    python -m benchmarks.interrupt --compute.workers=2   # any key of the recipe
    python -m benchmarks.interrupt --recipe FILE --run FOLDER --delays 5 30 --stages sft rl

Every stage is run by its own command, which is started, interrupted, and started again for the
next moment, so that it resumes each time; after its last moment it goes on to its end. An
interrupt is what a terminal makes of Ctrl-C: SIGINT to the whole process group. Moments are so
many seconds after a command has begun to work (`--delays`), its imports done; in `rl` they lie
within a step, while it attempts or while it learns, as foretold by the seconds of the step before
it. The exit code is 1 when an end took more than two seconds, had another exit code than an
interrupted command has, or left processes behind.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from benchmarks.kill import stage_of
from benchmarks.small import write_recipe

from forethought.app.cli import INTERRUPTED, STAGES
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.journal.status import STATUS, read_status

CHANGES = (
    "--collect.problems=1900",
    "--sft.phases.0.steps=400",
    "--measure.problems=400",
    "--measure.attempts=8",
    "--rl.steps=24",
    "--rl.problems=16",
    "--rl.group_size=8",
    "--eval.attempts=200",
)
"""What the run has beside the small recipe: seconds of work in each stage."""
PROBLEMS = 2400
DELAYS = (0.2, 1.0, 2.5)
SHARES = (0.2, 0.5, 0.8)
"""How much of a part of a step has passed when it is interrupted."""
PARTS = ("attempt", "learn")
"""The parts of a step of RL, in their order, as the journal names their seconds."""
GOAL = 2.0
"""Seconds."""
PATIENCE = 60.0
"""Seconds after which a process that was interrupted is given up and killed."""
LOOK = 0.005
"""Seconds between looks at a run."""
Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When to interrupt a stage: after `amount` seconds, or after that share of a `part`."""

    stage: str
    amount: float
    part: str = ""

    @property
    def place(self) -> str:
        """The stage, and the part of it."""
        return f"{self.stage}, {self.part}" if self.part else self.stage

    def __str__(self) -> str:
        return f"{self.amount:.0%} of it" if self.part else f"{self.amount:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How an interrupted command ended, and where the run then stood."""

    moment: Moment
    seconds: float
    code: int
    left: int
    stood: str

    @property
    def good(self) -> bool:
        """Whether it ended in time, as an interrupted command does, with all its processes."""
        return self.seconds <= GOAL and self.code == INTERRUPTED and not self.left


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """The commands of one run: its recipe, its folder, and what its recipe has otherwise."""

    recipe: Path
    folder: Path
    changes: tuple[str, ...] = ()

    @property
    def log(self) -> Path:
        """Where the commands say what they do."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def start(self, stage: str) -> Process:
        """A stage's command, leading a session of its own."""
        (self.folder / STATUS).unlink(missing_ok=True)  # it comes back when work begins
        words = [stage, str(self.recipe), "--run", str(self.folder), *self.changes]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "forethought", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},  # SIGABRT says where it is
                # As a terminal starts it: a shell's background jobs ignore the signal.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )

    def failed(self, stage: str, code: int) -> SystemExit:
        """The error that a command ended in another way than it should."""
        said = self.log.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
        return SystemExit(f"forethought {stage} ended with code {code}, see {self.log}:\n{said}")


def moments_of(stage: str, delays: tuple[float, ...]) -> list[Moment]:
    """The moments at which a stage is interrupted."""
    if stage == "rl":
        return [Moment(stage=stage, part=part, amount=share) for part in PARTS for share in SHARES]
    return [Moment(stage=stage, amount=delay) for delay in delays]


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


def stepped(folder: Path, stage: str) -> Callable[[], bool]:
    """Whether a step has been committed from now on; resuming may take some back first."""
    least = committed(folder, stage)

    def more() -> bool:
        nonlocal least
        now = committed(folder, stage)
        least = min(least, now)
        return now > least

    return more


def say_where(process: psutil.Process) -> None:
    """Let a process that does not end say in its log where it is; whether it waits for a disk."""
    print(f"process {process.pid} has not ended: its state is {process.status()}", flush=True)
    process.send_signal(signal.SIGABRT)


def interrupt(process: Process) -> tuple[float, int, int]:
    """Press Ctrl-C: seconds to the end, the exit code, and how many processes were left.

    Those have `GOAL` seconds more and are then killed.
    """
    one = psutil.Process(process.pid)
    members = [one, *one.children(recursive=True)]
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        time.sleep(LOOK / 5)
    seconds = time.monotonic() - began
    if process.poll() is None:
        say_where(one)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GOAL)
    _, left = psutil.wait_procs(members, timeout=GOAL)
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return seconds, process.wait(), len(left)


def ends_of(commands: Commands, stage: str, moments: list[Moment]) -> Iterator[End]:
    """Interrupt a stage at every moment, then let it go on to its end."""
    for moment in moments:
        process = commands.start(stage)
        try:
            if not has_come(moment, process, commands.folder):
                print(f"{moment.place} had ended before {moment}")
                break
            seconds, code, left = interrupt(process)
        finally:
            end(process)
        place = stage_of(commands.folder)
        yield End(moment=moment, seconds=seconds, code=code, left=left, stood=place)
    process = commands.start(stage)
    try:
        code = process.wait()
    finally:
        end(process)
    if code:
        raise commands.failed(stage, code)


def end(process: Process) -> None:
    """Kill a command and its group, unless it has ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def summary(ends: list[End]) -> Iterator[str]:
    """A line for each place: how often, and how long it took."""
    for place in dict.fromkeys(each.moment.place for each in ends):
        seconds = [each.seconds for each in ends if each.moment.place == place]
        took = f"median {median(seconds):.2f} s, largest {max(seconds):.2f} s"
        yield f"{place:14} {len(seconds)} times, {took}"
    most = max((each.seconds for each in ends), default=0.0)
    bad = sum(not each.good for each in ends)
    yield f"largest of {len(ends)}: {most:.2f} s (goal: {GOAL:g} s); {bad} not as they should"


def measured(commands: Commands, stages: list[str], delays: tuple[float, ...]) -> list[End]:
    """Go through the stages up to the last of those asked for; a printed line for each end."""
    print(f"{'stage':14} {'after':>10} {'ended in':>10} {'code':>5} {'left':>5}  it stood at")
    ends: list[End] = []
    for stage in [*STAGES][: max(map([*STAGES].index, stages)) + 1]:
        moments = moments_of(stage, delays) if stage in stages else []
        for one in ends_of(commands, stage, moments):
            ends.append(one)
            after = f"{one.moment!s:>10} {one.seconds:8.2f} s {one.code:5} {one.left:5}"
            print(f"{one.moment.place:14} {after}  {one.stood}", flush=True)
    return ends


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each interrupt and the summary; 1 when one was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--recipe", type=Path, help="instead of the small one")
    parser.add_argument("--run", type=Path, help="a folder of its own (default: a temporary one)")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=[*STAGES])
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS, metavar="SECONDS")
    options, changes = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        recipe = options.recipe or write_recipe(Path(place), PROBLEMS)
        commands = Commands(
            recipe=recipe,
            folder=options.run or Path(place) / "run",
            changes=(*(() if options.recipe else CHANGES), *changes),
        )
        commands.folder.parent.mkdir(parents=True, exist_ok=True)
        ends = measured(commands, options.stages, tuple(options.delays))
    print("\n".join(summary(ends)))
    return 0 if ends and all(each.good for each in ends) else 1


if __name__ == "__main__":
    raise SystemExit(main())
