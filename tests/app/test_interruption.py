"""A run may die at any moment: the same command ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from app.small import family, forethought, outcome, start
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

MOMENTS = {
    "collect": 1,
    "sft_first": 15,
    "sft_second": 3,
    "eval_before": 0,
    "measure": 1,
    "rl": 3,
}
"""How many steps of a stage are committed when the run is killed; exams are one step."""


@pytest.fixture(scope="module")
def undisturbed(recipe, tmp_path_factory):
    """What the longer run comes to when it is left alone."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert forethought("quickstart", "--recipe", recipe, "--run", folder, *LONG) == 0
    return outcome(folder)


def reached(folder, stage, steps):
    """Whether a stage has begun and committed so many steps."""
    try:
        with Run.read(folder) as run:
            return any(one.name == stage and one.steps >= steps for one in run.stages())
    except RecipeError:
        return False


def wait_until(truth, alive):
    """Wait for something while a process lives; fail once it is dead or patience is at an end."""
    limit = time.monotonic() + PATIENCE
    while not truth():
        assert alive(), "the run ended before it was to be interrupted"
        assert time.monotonic() < limit, "the run did not get there"
        time.sleep(0.002)


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


@pytest.mark.parametrize("stage", MOMENTS)
def test_a_run_killed_in_a_stage_ends_as_if_undisturbed(recipe, tmp_path, undisturbed, stage):
    folder, log = tmp_path / "run", tmp_path / "log"
    words = ("quickstart", "--recipe", recipe, "--run", folder, *LONG)
    process = start(*words, log=log)
    wait_until(lambda: reached(folder, stage, MOMENTS[stage]), process.is_alive)
    members = family(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert unfinished(folder, stage)
    assert members
    assert all_gone(members)
    assert forethought(*words) == 0
    assert outcome(folder) == undisturbed


@pytest.mark.parametrize(
    "sign", ["sft_first/.*.partial", "sft_first/39", "sft_second/19", "rl/.*.partial", "rl/5"]
)
def test_a_run_killed_while_a_checkpoint_is_made_ends_as_if_undisturbed(
    recipe, tmp_path, undisturbed, sign
):
    # In the middle of a save, or between a stage's last checkpoint and its end.
    folder = tmp_path / "run"
    words = ("quickstart", "--recipe", recipe, "--run", folder, *LONG)
    process = start(*words, log=tmp_path / "log")
    wait_until(lambda: any(folder.glob(f"checkpoints/{sign}")), process.is_alive)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert forethought(*words) == 0
    assert outcome(folder) == undisturbed
    assert not [*folder.glob("checkpoints/*/.*")]


def test_workers_do_not_outlive_a_killed_run_and_it_resumes(recipe, tmp_path):
    words = ("quickstart", "--recipe", recipe, *LONG, "--compute.workers=2")
    alone = tmp_path / "alone"
    assert forethought(*words, "--run", alone) == 0
    folder = tmp_path / "run"
    process = start(*words, "--run", folder, log=tmp_path / "log")
    wait_until(lambda: reached(folder, "rl", 2), process.is_alive)
    members = family(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert len(members) >= 4  # itself, two workers, the sandbox
    assert all_gone(members)
    assert forethought(*words, "--run", folder) == 0
    assert outcome(folder) == outcome(alone)


@pytest.mark.parametrize(("stage", "workers"), [("sft_first", 0), ("rl", 2)])
def test_control_c_stops_a_run_and_it_resumes(recipe, tmp_path, stage, workers):
    folder = tmp_path / "run"
    words = ["quickstart", "--recipe", recipe, "--run", folder, *LONG]
    words = [*map(str, words), f"--compute.workers={workers}"]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "forethought", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # As a terminal starts it: a shell's background jobs ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    wait_until(lambda: reached(folder, "collect", 1), lambda: process.poll() is None)
    beginning = time.monotonic() - began
    wait_until(lambda: reached(folder, stage, 2), lambda: process.poll() is None)
    members = family(process.pid)
    process.send_signal(signal.SIGSTOP)  # so that nothing is done between counting and the signal
    before, stopped = committed(folder, stage), time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the whole group hears it
    process.send_signal(signal.SIGCONT)
    said, complaint = process.communicate(timeout=PATIENCE)
    ending = time.monotonic() - stopped
    assert process.returncode == 130
    assert committed(folder, stage) <= before + 1
    assert ending < beginning  # which took several times as long, on a machine as busy
    assert "Stopped. What is finished is kept; the same command goes on from there." in said
    assert complaint == ""
    assert unfinished(folder, stage)
    assert all_gone(members)
    assert forethought(*words) == 0
    assert Path(folder, "report.html").is_file()


def test_two_processes_do_not_write_one_run(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    process = start("quickstart", "--recipe", recipe, "--run", folder, log=tmp_path / "log")
    try:
        wait_until(lambda: reached(folder, "sft_first", 1), process.is_alive)
        assert forethought("quickstart", "--recipe", recipe, "--run", folder) == 2
        assert f"is being written by process {process.pid}" in capsys.readouterr().err
    finally:
        process.kill()
        process.join()
