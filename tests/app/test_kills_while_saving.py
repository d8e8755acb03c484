"""A run may be killed while it saves: the same command ends as if nothing had happened."""

import os
import signal

import pytest

from app.interrupted import LONG, wait_until
from app.small import forethought, outcome, start


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
