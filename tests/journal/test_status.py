"""How a run stands is told in a file: while it runs, and whatever it came to."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import forethought
from disks import largest_file
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.journal.run import Run
from forethought.journal.status import Status, read_status, reported
from journal.journal_values import small_group

BREAKS = """
import sys
from pathlib import Path
from forethought.journal.run import Run
from forethought.journal.status import reported

with Run.create_or_open(Path(sys.argv[1]), {}) as run, reported(run, "rl"):
    stage = run.stage("rl")
    for step in range(stage.next_step, 5):
        if step == 1:
            raise RuntimeError("boom")
        stage.commit(step)
"""


def running(steps):
    return Status(state="running", command="rl", stage="rl", completed_steps=steps)


def works(folder, error=None, steps=2):
    """A command that commits some steps of a stage and then ends, perhaps by an error."""
    with Run.create_or_open(folder, {}) as run, reported(run, "rl"):
        assert read_status(folder) == Status(state="running", command="rl")
        stage = run.stage("rl")
        for step in range(steps):
            stage.keep(step, [small_group(f"rl/{step}")])
            stage.commit(step)
            assert read_status(folder) == running(step + 1)
        if error is not None:
            raise error
        stage.finish()


def test_a_command_that_ends_well_is_done(tmp_path):
    works(tmp_path)
    status = Status(state="done", command="rl", stage="rl", completed_steps=2)
    assert read_status(tmp_path) == status


def test_a_command_that_breaks_has_failed_and_its_error_names_the_stage_and_step(tmp_path):
    error = RuntimeError("boom")
    with pytest.raises(RuntimeError) as risen:
        works(tmp_path, error)
    assert risen.value is error
    assert error.__notes__ == ["RuntimeError: boom (stage rl, step 2)"]
    assert read_status(tmp_path) == Status(
        state="failed", command="rl", stage="rl", completed_steps=2, error="RuntimeError: boom"
    )


def test_a_command_that_is_refused_has_failed_with_its_message_alone(tmp_path):
    error = RecipeError("rl.steps is 0: set it to 1 or more")
    with pytest.raises(RecipeError):
        works(tmp_path, error, steps=0)
    assert not hasattr(error, "__notes__")
    status = read_status(tmp_path)
    assert (status.state, status.completed_steps) == ("failed", 0)
    assert status.error == "RecipeError: rl.steps is 0: set it to 1 or more"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), SystemExit(3)])
def test_a_command_that_is_interrupted_was_stopped(interruption, tmp_path):
    with pytest.raises(type(interruption)):
        works(tmp_path, interruption)
    assert read_status(tmp_path) == Status(
        state="stopped", command="rl", stage="rl", completed_steps=2
    )


def test_the_error_rises_also_where_its_status_cannot_be_written(tmp_path):
    def breaks():
        with Run.create_or_open(tmp_path, {}) as run, reported(run, "rl"):
            (tmp_path / "status.json").unlink()
            (tmp_path / "status.json").mkdir()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        breaks()


def test_a_status_that_a_full_disk_keeps_from_being_written_is_not_left_untrue(tmp_path):
    with (
        ExitStack() as full,
        pytest.raises(RuntimeError, match="boom"),
        Run.create_or_open(tmp_path, {}) as run,
        reported(run, "rl"),
    ):
        assert read_status(tmp_path).state == "running"
        full.enter_context(largest_file(10))
        raise RuntimeError("boom")
    assert not (tmp_path / "status.json").exists()


def test_a_command_that_damage_ends_has_failed(tmp_path):
    with pytest.raises(RuntimeError), Run.create_or_open(tmp_path, {}) as run, reported(run, "rl"):
        run.stage("rl").commit(0)
        with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection, connection:
            connection.execute("update stages set begun_at = 'abc'")
        raise RuntimeError("boom")
    assert read_status(tmp_path).error == "RuntimeError: boom"


def test_a_step_counts_also_where_its_status_cannot_be_written(tmp_path):
    with Run.create_or_open(tmp_path, {}) as run:
        with reported(run, "rl"):
            (tmp_path / "status.json").unlink()
            (tmp_path / "status.json").mkdir()
            run.stage("rl").commit(0)
            (tmp_path / "status.json").rmdir()
        run.stage("rl").commit(1)
        assert run.steps("rl") == [0, 1]
    done = Status(state="done", command="rl", stage="rl", completed_steps=1)
    assert read_status(tmp_path) == done  # a step outside of a command is none of its steps


LOST = "9 of 10 attempts were not measured"
TRACE = "Traceback (most recent call last):\nKeyError: 'x \udcff'\n"


def test_how_attempts_broke_is_kept_in_a_file_that_the_message_names(tmp_path):
    with pytest.raises(UnmeasuredError) as risen:
        works(tmp_path, UnmeasuredError(LOST, TRACE))
    file = tmp_path / "failure.txt"
    message = f"{LOST}. The traceback of one that broke is in {file}"
    assert str(risen.value) == message
    assert read_status(tmp_path).error == f"UnmeasuredError: {message}"
    told = TRACE.replace("\udcff", r"\udcff")
    assert file.read_text() == f"stage rl, step 2: {LOST}\n\n{told}"
    works(tmp_path)
    assert not file.exists()  # it is of the last command only


def test_a_failure_whose_traceback_nobody_has_names_no_file(tmp_path):
    with pytest.raises(UnmeasuredError, match=f"{LOST}$"):
        works(tmp_path, UnmeasuredError(LOST, ""))
    assert not (tmp_path / "failure.txt").exists()


def test_a_failure_rises_as_it_is_where_its_traceback_cannot_be_written(tmp_path):
    def breaks():
        with Run.create_or_open(tmp_path, {}) as run, reported(run, "rl"):
            (tmp_path / "failure.txt").mkdir()
            raise UnmeasuredError(LOST, TRACE)

    with pytest.raises(UnmeasuredError, match=f"{LOST}$"):
        breaks()
    assert [*(tmp_path / "failure.txt").iterdir()] == [*tmp_path.glob(".*.part")] == []


def test_a_process_that_breaks_ends_with_the_error_its_step_and_a_code_that_is_not_zero(tmp_path):
    words = [sys.executable, "-c", BREAKS, str(tmp_path / "run")]
    here = {**os.environ, "PYTHONPATH": str(Path(forethought.__file__).parents[1])}
    ended = subprocess.run(words, capture_output=True, text=True, check=False, env=here)
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last == "RuntimeError: boom (stage rl, step 1)"
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["state"], status["completed_steps"]) == ("failed", 1)
    with Run.read(tmp_path / "run") as run:
        assert run.stage("rl").next_step == 1
        assert not run.stage("rl").finished
