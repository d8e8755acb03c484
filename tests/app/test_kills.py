"""A run may be killed in any stage, and while it saves: it ends as if nothing had happened.

One run is killed in one place after the other, and what it has finished by then is compared each
time, so that a kill which does harm is found where it was.
"""

import os
import signal
from functools import partial

from app.interrupted import LONG, all_gone, reached, unfinished, wait_until
from app.small import family, finished, forethought, outcome, start

MOMENTS = {
    "collect": 1,
    "sft_first": 15,
    "sft_second": 3,
    "eval_before": 0,
    "measure": 1,
    "rl": 3,
}
"""How many steps of a stage are committed when the run is killed; exams are one step."""
SAVING = ("sft_first/.*.partial", "sft_first/39", "sft_second/19", "rl/.*.partial", "rl/5")
"""In the middle of a save, or between a stage's last checkpoint and its end."""
BRIEF = 0.002
"""Seconds in which a save is not over yet."""


def there(folder, sign):
    """Whether a checkpoint is there, or the beginning of one."""
    return any(folder.glob(f"checkpoints/{sign}"))


def killed(words, log, moment, *pause):
    """The processes of a command that is killed at a moment."""
    process = start(*words, log=log)
    wait_until(moment, process.is_alive, *pause)
    members = family(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return members


def test_a_run_killed_in_one_stage_after_the_other_ends_as_if_undisturbed(
    recipe, tmp_path, undisturbed
):
    folder = tmp_path / "run"
    words = ("quickstart", "--recipe", recipe, "--run", folder, *LONG)
    for stage, steps in MOMENTS.items():
        members = killed(words, tmp_path / "log", partial(reached, folder, stage, steps))
        assert unfinished(folder, stage), stage
        assert members, stage
        assert all_gone(members), stage
        done = finished(folder)
        assert outcome(folder, done) == undisturbed.of(done), f"before the kill in {stage}"
    assert forethought(*words) == 0
    assert outcome(folder) == undisturbed


def test_a_run_killed_at_one_checkpoint_after_the_other_ends_as_if_undisturbed(
    recipe, tmp_path, undisturbed
):
    folder = tmp_path / "run"
    words = ("quickstart", "--recipe", recipe, "--run", folder, *LONG)
    for sign in SAVING:
        killed(words, tmp_path / "log", partial(there, folder, sign), BRIEF)
        done = finished(folder)
        assert outcome(folder, done) == undisturbed.of(done), f"before the kill at {sign}"
    assert forethought(*words) == 0
    assert outcome(folder) == undisturbed
    assert not [*folder.glob("checkpoints/*/.*")]
