"""Press Ctrl-C in every stage of a run, and take the time until it has ended.

    python -m benchmarks.interrupt                       # the small recipe, some minutes
    python -m benchmarks.interrupt --compute.workers=2   # any key of the recipe
    python -m benchmarks.interrupt --recipe FILE --run FOLDER --delays 5 30 --stages sft rl

Every stage is run by its own command, which is started, interrupted, and started again for the next
moment, so that it resumes each time; after its last moment it goes on to its end. An interrupt is
what a terminal makes of Ctrl-C: SIGINT to the whole process group. Moments are so many seconds
after a command has begun to work (`--delays`), its imports done; in `rl` they lie within a step,
while it attempts or while it learns, as foretold by the seconds of the step before it. `sft` and
`rl` are also interrupted while they calibrate, with `compute.workers = "auto"`; what was found
before is forgotten for that. The exit code is 1 when an end took more than two seconds, had another
exit code than an interrupted command has, or left processes behind.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from benchmarks.kill import stage_of
from benchmarks.moments import (
    CALIBRATION,
    DELAYS,
    LOOK,
    Moment,
    Process,
    has_come,
    moments_of,
)
from benchmarks.small import write_recipe

from forethought.app.cli import STAGES
from forethought.app.context import CALIBRATION as KEPT
from forethought.app.stopping import INTERRUPTED
from forethought.journal.status import STATUS

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
GOAL = 2.0
"""Seconds."""
PATIENCE = 60.0
"""Seconds after which a process that was interrupted is given up and killed."""
WIDTH = 16
"""Characters of a place."""


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

    def start_for(self, moment: Moment) -> Process:
        """The command of a moment's stage, which calibrates where the moment lies in that."""
        if moment.part != CALIBRATION:
            return self.start(moment.stage)
        (self.folder / KEPT).unlink(missing_ok=True)  # otherwise it keeps to that
        return self.start(moment.stage, "--compute.workers=auto")

    def start(self, stage: str, *more: str) -> Process:
        """A stage's command, leading a session of its own."""
        (self.folder / STATUS).unlink(missing_ok=True)  # it comes back when work begins
        words = [stage, str(self.recipe), "--run", str(self.folder), *self.changes, *more]
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
        process = commands.start_for(moment)
        try:
            if not has_come(moment, process, commands.folder):
                print(f"{moment.place} had ended before {moment}")
                if moment.part == CALIBRATION:  # the stage has more to do
                    continue
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
        yield f"{place:{WIDTH}} {len(seconds)} times, {took}"
    most = max((each.seconds for each in ends), default=0.0)
    bad = sum(not each.good for each in ends)
    yield f"largest of {len(ends)}: {most:.2f} s (goal: {GOAL:g} s); {bad} not as they should"


def measured(commands: Commands, stages: list[str], delays: tuple[float, ...]) -> list[End]:
    """Go through the stages up to the last of those asked for; a printed line for each end."""
    print(f"{'stage':{WIDTH}} {'after':>10} {'ended in':>10} {'code':>5} {'left':>5}  it stood at")
    ends: list[End] = []
    for stage in [*STAGES][: max(map([*STAGES].index, stages)) + 1]:
        moments = moments_of(stage, delays) if stage in stages else []
        for one in ends_of(commands, stage, moments):
            ends.append(one)
            after = f"{one.moment!s:>10} {one.seconds:8.2f} s {one.code:5} {one.left:5}"
            print(f"{one.moment.place:{WIDTH}} {after}  {one.stood}", flush=True)
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
