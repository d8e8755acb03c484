"""A run whose parts die says so by its exit code and its status; then it goes on."""

import json

import psutil

from app.small import family, forethought, start
from app.test_interruption import LONG, reached, wait_until
from forethought.journal.run import Run
from forethought.journal.status import read_status


def test_a_run_whose_model_workers_were_killed_fails_and_goes_on_when_asked(recipe, tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    words = ("quickstart", "--recipe", recipe, *LONG, "--compute.workers=2", "--run", folder)
    process = start(*words, log=log)
    wait_until(lambda: reached(folder, "rl", 1), process.is_alive)
    mine = psutil.Process(process.pid)
    for child in mine.children():
        if child.cmdline() == mine.cmdline():  # forked; the sandbox has a command of its own
            child.kill()
    process.join()
    assert process.exitcode == 2
    status = read_status(folder)
    assert (status.state, status.command, status.stage) == ("failed", "quickstart", "rl")
    assert "model worker" in status.error
    with Run.read(folder) as run:
        assert len(run.steps("rl")) == status.completed_steps >= 1
        assert not run.stage("rl").finished
    assert all(not one.is_running() for one in family(process.pid))
    assert forethought(*words) == 0
    assert read_status(folder).state == "done"


def test_a_refused_command_fails_and_a_finished_run_is_done(staged):
    status = json.loads((staged.eval / "status.json").read_text())
    assert (status["state"], status["command"], status["error"]) == ("done", "eval", "")
