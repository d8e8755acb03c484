"""Runs that tests interrupt: when, and what is left of them."""

import time

import psutil

from forethought.core.errors import RecipeError
from forethought.journal.run import Run

PATIENCE = 120
"""Seconds after which a test gives up; a command needs a tenth of that."""

# Two portions to collect and to measure, so that a step of each is committed before its end.
LONG = (
    "--collect.problems=300",
    "--measure.problems=80",
    "--measure.attempts=2",
    "--rl.steps=6",
    "--eval.attempts=12",
)


def reached(folder, stage, steps):
    """Whether a stage has begun and committed so many steps."""
    try:
        with Run.read(folder) as run:
            return any(one.name == stage and one.steps >= steps for one in run.stages())
    except RecipeError:
        return False


def wait_until(truth, alive, pause=0.01):
    """Wait for something while a process lives; fail once it is dead or patience is at an end.

    It is looked for every `pause` seconds, so that looking leaves the cores to the process.
    """
    limit = time.monotonic() + PATIENCE
    while not truth():
        assert alive(), "the run ended before it was to be interrupted"
        assert time.monotonic() < limit, "the run did not get there"
        time.sleep(pause)


def committed(folder, stage):
    """How many steps of a stage are in the journal."""
    with Run.read(folder) as run:
        return len(run.steps(stage))


def unfinished(folder, stage):
    with Run.read(folder) as run:
        return not run.stage(stage).finished


def all_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=30)
    return not alive
