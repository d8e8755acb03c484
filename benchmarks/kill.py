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
from dataclasses import dataclass
from pathlib import Path

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
MOST_SECONDS = 600
"""After which a run that should end is given up."""


@dataclass(frozen=True)
class Kill:
    """When a run was killed, where it then stood, and what ended otherwise (empty: nothing)."""

    second: float
    saving: bool
    place: str
    differs: str


def run_once(recipe, folder):
    """The run, in a process of its own that leads its own group."""
    os.setsid()
    words = ["quickstart", "--recipe", str(recipe), "--run", str(folder), *CHANGES]
    with (
        Path(f"{folder}.log").open("a") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        raise SystemExit(main_command(words))


def start(recipe, folder):
    """The run as a process whose imports are done, so that it is killed at work."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["forethought.app.pipeline"])
    process = context.Process(target=run_once, args=(recipe, folder))
    process.start()
    return process


def whole(recipe, folder):
    """Run to the end; seconds from its first stage on."""
    process = start(recipe, folder)
    begun = when_begun(process, folder)
    process.join(MOST_SECONDS)
    if process.exitcode != 0:
        said = Path(f"{folder}.log").read_text(encoding="utf-8").strip().splitlines()
        raise SystemExit(f"the run in {folder} ended with {process.exitcode}: {said[-1]}")
    return time.monotonic() - begun


def when_begun(process, folder):
    """Wait until there is a stage."""
    while process.is_alive() and stage_of(folder) == NOWHERE:
        time.sleep(0.01)
    return time.monotonic()


def is_saving(folder):
    """Whether a checkpoint is being written."""
    return any(folder.glob("checkpoints/*/.*.partial"))


def stage_of(folder):
    """The last stage that was begun, and its committed steps."""
    try:
        with Run.read(folder) as run:
            stages = run.stages()
    except RecipeError:
        return NOWHERE
    return f"{stages[-1].name}, {stages[-1].steps} steps" if stages else NOWHERE


def killed(recipe, folder, second, *, saving):
    """Start a run and kill it, with all that it started, `second` seconds after it began."""
    process = start(recipe, folder)
    begun = when_begun(process, folder)
    while time.monotonic() - begun < second and process.is_alive():
        time.sleep(0.001)
    while saving and process.is_alive() and not is_saving(folder):
        pass
    with contextlib.suppress(ProcessLookupError):  # a moment after its end
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return stage_of(folder)


def stage_parts(run, name):
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


def outcome(folder):
    """All that a run came to, apart from how long it took: each part by its name."""
    found = {}
    with Run.read(folder) as run:
        for stage in run.stages():
            found |= stage_parts(run, stage.name)
    for path in sorted(folder.glob("checkpoints/**/*")):
        # The library's own notes name versions and folders.
        if path.suffix == ".safetensors" or path.name == "state.json":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(folder))] = digest
    return found


def difference(expected, found):
    """The first part that is not the same in two outcomes, and how many are; empty: none."""
    parts = [*expected, *(each for each in found if each not in expected)]
    other = [each for each in parts if expected.get(each) != found.get(each)]
    if not other:
        return ""
    first = other[0]
    return f"{len(other)} parts, first {first}: {expected.get(first)} and {found.get(first)}"[:600]


def kills(recipe, place, count, seed):
    """Kill so many runs, and yield how each ended."""
    seconds = whole(recipe, place / "undisturbed")
    expected = outcome(place / "undisturbed")
    moments = random.Random(seed)
    for number in range(count):
        folder, saving = place / f"killed_{number}", number % 2 == 1
        second = moments.uniform(0, seconds)
        stood = killed(recipe, folder, second, saving=saving)
        whole(recipe, folder)
        yield Kill(second, saving, stood, difference(expected, outcome(folder)))


def main(arguments=None):
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
