"""Rounds that teach nothing stop a run, which goes on once it is allowed to."""

from app.small import copied, forethought, refused
from forethought.journal.run import Run

NOTHING_COUNTS = (
    "--rl.off_policy.old=recomputed",
    "--rl.off_policy.correction.sequence_bounds=[2.0, 3.0]",
)


def test_a_run_stopped_by_idle_rounds_goes_on_with_another_limit(recipe, staged, tmp_path, capsys):
    folder = copied(staged.measure, tmp_path / "run")
    words = ("rl", recipe, "--run", folder, *NOTHING_COUNTS)
    limit = "--rl.limits.rounds_without_update"
    assert "rounds 0 to 1 taught nothing" in refused(capsys, *words, f"{limit}=2")
    with Run.read(folder) as run:
        assert run.steps("rl") == [0, 1]
    capsys.readouterr()
    assert forethought(*words, f"{limit}=0") == 0
    assert f"{limit[2:]} was 2, is now 0" in capsys.readouterr().out
    with Run.read(folder) as run:
        assert run.steps("rl") == [0, 1, 2, 3]
