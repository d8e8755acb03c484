"""A run that is stopped takes its processes with it, and the same command goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.interrupted import PATIENCE, all_gone, committed, reached, unfinished, wait_until
from app.small import copied, family, forethought, outcome, start

ROOM = ("--collect.problems=300", "--rl.steps=6")
"""A portion to collect before another, and rounds to stop in."""


def test_workers_do_not_outlive_a_killed_run_and_it_resumes(recipe, staged, tmp_path):
    words = ("quickstart", "--recipe", recipe, ROOM[1], "--compute.workers=2")
    alone = copied(staged.collect, tmp_path / "alone")  # nobody who works on a model collected
    assert forethought(*words, "--run", alone) == 0
    folder = copied(staged.collect, tmp_path / "run")
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
    words = ["quickstart", "--recipe", recipe, "--run", folder, *ROOM]
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
