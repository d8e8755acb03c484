"""A run may be killed in any stage: the same command ends as if nothing had happened."""

import os
import signal

import pytest

from app.interrupted import LONG, all_gone, reached, unfinished, wait_until
from app.small import family, forethought, outcome, start

MOMENTS = {
    "collect": 1,
    "sft_first": 15,
    "sft_second": 3,
    "eval_before": 0,
    "measure": 1,
    "rl": 3,
}
"""How many steps of a stage are committed when the run is killed; exams are one step."""


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
