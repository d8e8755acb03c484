"""A run that is killed, or whose disk fills up, keeps each step whole or does not have it."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disks import largest_file
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from journal.journal_values import small_group

TESTS = Path(__file__).parents[1]
PATHS = {"PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"}

WRITER = """
import sys
from pathlib import Path
from journal.journal_values import small_group
from forethought.journal.run import Run

with Run.create_or_open(Path(sys.argv[1]), {}) as run:
    stage = run.stage("rl")
    for step in range(stage.next_step, 100_000):
        stage.keep(step, [small_group(f"{step}/{place}", size=8) for place in range(step % 5)])
        stage.log(step, {f"metric/{number}": float(step) for number in range(20)})
        stage.commit(step)
        print(step, flush=True)
"""

FILLER = """
import resource, sys
from pathlib import Path
from journal.journal_values import small_group
from forethought.core.errors import RecipeError
from forethought.journal.run import Run

with Run.create_or_open(Path(sys.argv[1]), {}) as run:
    stage = run.stage("rl")
    stage.commit(0)
    (run.checkpoints / "weights").write_bytes(bytes(3_000_000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        for step in range(1, 1000):
            stage.keep(step, [small_group(f"{step}/{place}", size=8) for place in range(4)])
            stage.commit(step)
    except RecipeError as error:
        print(step, error, flush=True)
"""


def test_killing_the_writer_at_any_moment_leaves_whole_steps_only(tmp_path):
    chance = random.Random(0)
    for _ in range(4):
        said = _kill_after(tmp_path, chance.uniform(0.0, 0.15))
        with Run.read(tmp_path) as run:
            steps = run.steps("rl")
            assert steps == list(range(len(steps)))
            assert steps[-1] >= said, "a step that was reported as committed is lost"
            for step in steps:
                expected = [small_group(f"{step}/{place}", size=8).id for place in range(step % 5)]
                groups = list(run.groups("rl", step))
                assert [group.id for group in groups] == expected
                assert all(len(group.episodes) == 8 for group in groups)
            series = [(step, float(step)) for step in steps]
            assert all(run.series("rl", name) == series for name in run.metrics("rl"))
            assert len(run.metrics("rl")) == 20


def test_a_full_disk_is_explained_and_loses_nothing_that_was_committed(tmp_path):
    said = _run(FILLER, tmp_path).stdout
    failed, _, message = said.partition(" ")
    assert "journal.sqlite cannot be used" in message
    assert "MB are free" in message
    assert f"(`checkpoints/` of {tmp_path} holds 3 MB)" in message
    with Run.create_or_open(tmp_path, {}) as run:
        assert run.steps("rl") == list(range(int(failed)))
        stage = run.stage("rl")
        stage.keep(int(failed), [small_group("g")])
        stage.commit(int(failed))
        assert [group.id for group in run.groups("rl", int(failed))] == ["g"]


def test_a_journal_on_a_full_disk_is_not_called_damaged(tmp_path):
    with Run.create_or_open(tmp_path, {}) as run:
        run.stage("rl").commit(0)
    with largest_file(1000), pytest.raises(RecipeError, match="MB are free"):
        Run.create_or_open(tmp_path, {})
    with Run.create_or_open(tmp_path, {}) as run:
        assert run.steps("rl") == [0]


def _kill_after(folder, seconds):
    """Let the writer commit a few steps and some more time, kill it, and return its last word."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, env=PATHS, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        heard = [writer.stdout.readline() for _ in range(3)]
        time.sleep(seconds)
        writer.kill()
        heard += writer.stdout.read().split()
    return int(heard[-1])


def _run(code, folder):
    return subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=PATHS,
        capture_output=True,
        text=True,
        check=True,
    )
