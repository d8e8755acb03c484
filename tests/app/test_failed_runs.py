"""A run whose parts die says so by its exit code and its status; then it goes on."""

import json
import subprocess
import sys

import psutil

from app.interrupted import reached, wait_until
from app.small import copied, family, forethought, start
from forethought.journal.run import Run
from forethought.journal.status import read_status


def test_a_run_whose_model_workers_were_killed_fails_and_goes_on_when_asked(
    recipe, staged, tmp_path
):
    folder, log = copied(staged.measure, tmp_path / "run"), tmp_path / "log"
    more = ("--rl.steps=6", "--compute.workers=2")  # rounds left to be killed in
    words = ("quickstart", "--recipe", recipe, *more, "--run", folder)
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


BREAKS = """
import sys

from forethought.app.cli import main
from forethought.app.pipeline import WORK


async def breaks(context):
    stage = context.begin("collect", context.collect_sections)
    stage.commit(0)
    raise RuntimeError("boom")


WORK["collect"] = breaks
sys.exit(main(["collect", sys.argv[1], "--run", sys.argv[2]]))
"""


def test_a_fault_rises_through_the_command_and_its_last_line_says_where_it_was(recipe, tmp_path):
    folder = tmp_path / "run"
    words = [sys.executable, "-c", BREAKS, str(recipe), str(folder)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback (most recent call last):")
    last = ended.stderr.rstrip().splitlines()[-1]
    assert last == "RuntimeError: boom (stage collect, step 1)"
    status = read_status(folder)
    assert (status.state, status.command, status.stage) == ("failed", "collect", "collect")
    assert (status.completed_steps, status.error) == (1, "RuntimeError: boom")
    assert "Next:" not in ended.stdout


def test_a_refused_command_fails_and_a_finished_run_is_done(staged):
    status = json.loads((staged.eval / "status.json").read_text())
    assert (status["state"], status["command"], status["error"]) == ("done", "eval", "")
