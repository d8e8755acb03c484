"""Kill a run at random moments, let it resume, and compare with one that nothing disturbed.

    python -m benchmarks.kill                          # twenty kills, some minutes
    python -m benchmarks.kill --kills 3 --seed 1

The run is a small quickstart: two phases of imitation, the second with held-out demonstrations
and its best weights kept, then measurement, reinforcement learning and exams. Every other kill
waits for a checkpoint that is being written. Each killed run is started again with the same
command, and must end with weights, optimiser states, metrics and sampled tokens that are equal to
the bit. Exit code 1 when one does not.
"""

import argparse
import contextlib
import hashlib
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from benchmarks.small import write_recipe

from forethought.app.cli import main as main_command
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.watch.tool import USAGE

CHANGES = (
    "--collect.problems=96",
    "--sft.save_every=6",
    "--sft.held_out=0.1",
    "--sft.held_out_every=5",
    "--sft.keep=best",
    "--sft.phases.1.optimizer.schedule=cosine",
    "--measure.problems=16",
    "--rl.steps=8",
    "--rl.problems=4",
    "--rl.checkpoints.save_every=3",
)
"""What the run has beside the small recipe: more of each stage, to be killed in."""
NOWHERE = "before any stage"
MOST_SECONDS = 600.0
"""After which a run that should begin, save or end is given up."""
LOOK, SHORT_LOOK = 0.01, 0.001
"""Seconds between looks at a run's journal, and at its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """When a run was killed, where it then stood, and what ended otherwise (empty: nothing)."""

    second: float
    saving: bool
    place: str
    differs: str


def run_once(recipe: Path, folder: Path) -> None:
    """The run, in a process of its own that leads its own group."""
    os.setsid()
    words = ["quickstart", "--recipe", str(recipe), "--run", str(folder), *CHANGES]
    with (
        log_of(folder).open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        raise SystemExit(main_command(words))


def log_of(folder: Path) -> Path:
    """Where the run in `folder` says what it does."""
    return Path(f"{folder}.log")


@contextlib.contextmanager
def started(recipe: Path, folder: Path) -> Generator[ForkServerProcess]:
    """The run as a process whose imports are done, so that it is killed at work.

    With the block it ends, and all that it started.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forethought.app.pipeline"])
    process = context.Process(target=run_once, args=(recipe, folder))
    process.start()
    try:
        yield process
    finally:
        end(process)


def end(process: ForkServerProcess) -> None:
    """Kill a run with all that it started, whether it has a group of its own yet or not."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError):  # it has none, or has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def whole(recipe: Path, folder: Path) -> float:
    """Run to the end; seconds from its first stage on."""
    with started(recipe, folder) as process:
        begun = when_begun(process, folder)
        process.join(MOST_SECONDS)
        code, seconds = process.exitcode, time.monotonic() - begun
    if code != 0:
        how = f"has not ended after {MOST_SECONDS:g} s" if code is None else f"ended with {code}"
        raise SystemExit(f"the run in {folder} {how}: {last_words(folder)}")
    return seconds


def last_words(folder: Path) -> str:
    """The last line that a run has said."""
    try:
        said = log_of(folder).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return "it has said nothing"
    return said.rpartition("\n")[2]


def when_begun(process: ForkServerProcess, folder: Path) -> float:
    """Wait until there is a stage."""
    wait(lambda: stage_of(folder) != NOWHERE, process, LOOK, f"the run in {folder} has not begun")
    return time.monotonic()


def wait(truth: Callable[[], bool], process: ForkServerProcess, rest: float, late: str) -> None:
    """Wait until something is so, or the process has ended; look every `rest` seconds.

    Stops with what is `late` after `MOST_SECONDS`.
    """
    last = time.monotonic() + MOST_SECONDS
    while process.is_alive() and not truth():
        if time.monotonic() > last:
            raise SystemExit(f"{late} after {MOST_SECONDS:g} s")
        time.sleep(rest)


def is_saving(folder: Path) -> bool:
    """Whether a checkpoint is being written."""
    return any(folder.glob("checkpoints/*/.*.partial"))


def stage_of(folder: Path) -> str:
    """The last stage that was begun, and its committed steps."""
    try:
        with Run.read(folder) as run:
            stages = run.stages()
    except RecipeError:
        return NOWHERE
    return f"{stages[-1].name}, {stages[-1].steps} steps" if stages else NOWHERE


def killed(recipe: Path, folder: Path, second: float, *, saving: bool) -> str:
    """Start a run and kill it, with all that it started, `second` seconds after it began.

    With `saving`, as soon as it writes a checkpoint after that. Says where it then stood.
    """
    with started(recipe, folder) as process:
        process.join(max(0.0, when_begun(process, folder) + second - time.monotonic()))
        if saving:
            late = f"the run in {folder} has saved no checkpoint and not ended"
            wait(lambda: is_saving(folder), process, SHORT_LOOK, late)
    return stage_of(folder)


def stage_parts(run: Run, name: str) -> Iterator[tuple[str, Any]]:
    """What a stage came to: its numbers, its documents, and what was said in each attempt."""
    for metric in run.metrics(name):
        if not metric.startswith("seconds/"):
            yield f"{name}, metric {metric}", run.series(name, metric)
    for document in run.documents(name):
        if document != USAGE:  # what the host did, and only this process's part of it
            yield f"{name}, document {document}", run.document(name, document)
    for group in run.groups(name):
        for episode in group.episodes:
            sides = episode.trajectories
            words = [(each.role, each.text) for side in sides for each in side.messages]
            tokens = [side.segments for side in sides]
            yield f"{name}, attempt {episode.id}", (episode.verdict, words, tokens)


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run came to, apart from how long it took: each part by its name."""
    found: dict[str, Any] = {}
    with Run.read(folder) as run:
        for stage in run.stages():
            found |= stage_parts(run, stage.name)
    for path in sorted(folder.glob("checkpoints/**/*")):
        # The library's own notes name versions and folders.
        if path.suffix == ".safetensors" or path.name == "state.json":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """The first part that is not the same in two outcomes, and how many are; empty: none."""
    parts = [*expected, *(each for each in found if each not in expected)]
    other = [each for each in parts if expected.get(each) != found.get(each)]
    if not other:
        return ""
    first = other[0]
    return f"{len(other)} parts, first {first}: {expected.get(first)} and {found.get(first)}"[:600]


def kills(recipe: Path, place: Path, count: int, seed: int) -> Iterator[Kill]:
    """Kill so many runs, and yield how each ended."""
    seconds = whole(recipe, place / "undisturbed")
    expected = outcome(place / "undisturbed")
    moments = random.Random(seed)
    for number in range(count):
        folder, saving = place / f"killed_{number}", number % 2 == 1
        second = moments.uniform(0, seconds)
        stood = killed(recipe, folder, second, saving=saving)
        whole(recipe, folder)
        differs = difference(expected, outcome(folder))
        yield Kill(second=second, saving=saving, place=stood, differs=differs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each kill; the exit code says whether all ended alike."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    print(f"{'':3} {'killed after':>12}  {'while':8} {'it stood at':28} ended as undisturbed")
    equal = 0
    with tempfile.TemporaryDirectory() as place:
        recipe = write_recipe(Path(place))
        found = kills(recipe, Path(place), options.kills, options.seed)
        for number, kill in enumerate(found, start=1):
            equal += not kill.differs
            doing = "saving" if kill.saving else "anything"
            verdict = f"NO: {kill.differs}" if kill.differs else "yes, to the bit"
            print(
                f"{number:3} {kill.second:10.2f} s  {doing:8} {kill.place:28} {verdict}", flush=True
            )
    print(f"{equal} of {options.kills} resumed and ended equal to the bit")
    return 0 if equal == options.kills else 1


if __name__ == "__main__":
    raise SystemExit(main())
