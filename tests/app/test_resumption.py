"""A run goes on with what it was begun with; what may differ is said, what may not is named."""

import re

import pytest

from app.small import copied, forethought, outcome, refused
from disks import on_small_disk
from forethought.journal.run import Run


def reopened(folder, place, stage, steps):
    """A copy of a run in which a stage has come so far and no further."""
    copied(folder, place)
    with Run.create_or_open(place, {}) as run:
        run.stage(stage).rewind(steps)
    return place


@pytest.fixture
def half(staged, tmp_path):
    """A run that has done two of four rounds of reinforcement learning."""
    return reopened(staged.rl, tmp_path / "run", "rl", 2)


def said(capsys, *words):
    """What a command that ends well says."""
    capsys.readouterr()
    assert forethought(*words) == 0
    return capsys.readouterr().out


def test_what_binds_no_stage_may_differ_and_is_said_once(recipe, half, capsys):
    words = ("rl", recipe, "--run", half, "--compute.at_once=7", "--rl.checkpoints.keep_last=1")
    told = "rl goes on with other settings: compute.at_once was 128, is now 7; "
    assert told + "rl.checkpoints.keep_last was 2, is now 1" in said(capsys, *words)
    with Run.create_or_open(half, {}) as run:
        run.stage("rl").rewind(3)
    assert "other settings" not in said(capsys, *words)


def test_a_stage_goes_on_at_its_checkpoint_says_what_it_does_again_and_counts_it_once(
    recipe, half, staged, tmp_path, capsys
):
    with Run.create_or_open(half, {}) as run:
        run.stage("rl").commit(2)  # after the checkpoint of the second round
    told = said(capsys, "rl", recipe, "--run", half)
    assert "  goes on at round 3 of 4; 1 round since the last checkpoint is done again\n" in told
    assert "rounds: 4/4" in told
    folder = reopened(staged.sft, tmp_path / "sft", "sft_second", 13)
    told = said(capsys, "sft", recipe, "--run", folder)
    assert "goes on at step 11 of 20; 3 steps since the last checkpoint are done again" in told
    assert "phase second: 20/20" in told


def test_a_stage_that_is_begun_says_nothing_of_going_on(recipe, staged, tmp_path, capsys):
    folder = copied(staged.measure, tmp_path / "run")
    assert "goes on at" not in said(capsys, "rl", recipe, "--run", folder)


def test_a_later_stage_asks_nothing_of_what_bound_no_earlier_one(recipe, staged, tmp_path, capsys):
    folder = copied(staged.measure, tmp_path / "run")
    words = ("--compute.threads=2", "--sft.save_every=7", "--sft.keep_last=1", "--rl.steps=1")
    assert "other settings" not in said(capsys, "rl", recipe, "--run", folder, *words)


def test_a_stage_under_way_may_become_longer_and_ends_as_if_it_had_been_begun_so(
    recipe, half, staged, tmp_path, capsys
):
    six = "--rl.steps=6"
    assert "rl.steps was 4, is now 6" in said(capsys, "rl", recipe, "--run", half, six)
    whole = copied(staged.measure, tmp_path / "whole")
    assert forethought("rl", recipe, "--run", whole, six) == 0
    assert outcome(half, ["rl"]) == outcome(whole, ["rl"])
    assert "other settings" not in said(capsys, "eval", recipe, "--run", half, six)


def test_a_run_that_was_begun_before_a_release_added_settings_goes_on_to_the_same_end(
    recipe, half, staged, capsys
):
    with Run.create_or_open(half, {}) as run:
        for stage in (run.stage(found.name) for found in run.stages()):
            made = dict(stage.get("fingerprint"))
            del made["tool"]["queue"]
            if "sft" in made:
                del made["sft"]["keep_best"]
                for phase in made["sft"]["phases"]:
                    del phase["optimizer"]["beta_1"]
            if "rl" in made:
                del made["rl"]["limits"], made["rl"]["credit"]["advantage"]
            stage.put("fingerprint", made)
    assert "other settings" not in said(capsys, "rl", recipe, "--run", half)
    assert outcome(half, ["rl"]) == outcome(staged.rl, ["rl"])


def test_a_phase_under_way_may_become_longer(recipe, staged, tmp_path, capsys):
    folder = reopened(staged.sft, tmp_path / "run", "sft_second", 15)
    longer = "--sft.phases.1.steps=22"
    words = said(capsys, "sft", recipe, "--run", folder, longer)
    assert "sft.phases.1.steps was 20, is now 22" in words
    with Run.read(folder) as run:
        assert run.steps("sft_second")[-1] == 21


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("--rl.steps=3", "rl.steps was 4, is now 3"),
        ("--rl.optimizer.rate=1e-4", "rl.optimizer.rate was 0.001, is now 0.0001"),
        ("--rl.problems=3", "rl.problems was 2, is now 3"),
        ("--sft.phases.1.steps=30", "sft.phases.1.steps was 20, is now 30"),
    ],
)
def test_what_was_learnt_with_one_value_does_not_go_on_with_another(
    recipe, half, capsys, override, words
):
    message = refused(capsys, "rl", recipe, "--run", half, override)
    assert words in message
    assert "Restore them, or name another folder with --run" in message


@pytest.mark.parametrize("command", ["measure", "rl", "eval"])
def test_no_later_stage_and_no_exam_sees_earlier_thinking_otherwise_than_it_was_trained(
    recipe, staged, tmp_path, capsys, command
):
    folder = copied(staged.rl, tmp_path / "run")
    message = refused(capsys, command, recipe, "--run", folder, "--sampling.thinking=strip")
    assert 'sampling.thinking was "keep", is now "strip"' in message


def test_all_that_differs_is_named_at_once(recipe, half, capsys):
    changed = ("--rl.problems=3", "--rl.optimizer.updates=1", "--compute.threads=2")
    message = refused(capsys, "rl", recipe, "--run", half, *changed)
    assert "rl.problems was 2, is now 3; rl.optimizer.updates was 2, is now 1." in message
    assert "compute" not in message


@pytest.mark.parametrize(
    "schedule",
    [
        "--rl.optimizer.schedule=cosine",
        "--rl.control.clip={schedule='linear-floor', start=0.3}",
        "--rl.control.clip={schedule='cosine', start=0.3}",
    ],
)
def test_a_schedule_that_ends_with_the_steps_does_not_let_them_differ(
    recipe, staged, tmp_path, capsys, schedule
):
    done = copied(staged.measure, tmp_path / "done")
    assert forethought("rl", recipe, "--run", done, schedule, "--rl.steps=2") == 0
    folder = reopened(done, tmp_path / "run", "rl", 1)
    message = refused(capsys, "rl", recipe, "--run", folder, schedule, "--rl.steps=3")
    assert "rl.steps was 2, is now 3" in message


def test_a_steered_clip_that_does_not_go_by_the_steps_lets_them_differ(
    recipe, staged, tmp_path, capsys
):
    clip = "--rl.control.clip={schedule='entropy-feedback', start=0.3}"
    done = copied(staged.measure, tmp_path / "done")
    assert forethought("rl", recipe, "--run", done, clip, "--rl.steps=2") == 0
    folder = reopened(done, tmp_path / "run", "rl", 1)
    told = said(capsys, "rl", recipe, "--run", folder, clip, "--rl.steps=3")
    assert "rl.steps was 2, is now 3" in told


def test_a_finished_stage_does_not_become_longer(recipe, staged, tmp_path, capsys):
    folder = copied(staged.rl, tmp_path / "run")
    message = refused(capsys, "rl", recipe, "--run", folder, "--rl.steps=6")
    assert "rl.steps was 4, is now 6" in message


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def test_a_damaged_checkpoint_is_skipped_with_the_reason_and_its_steps_are_done_again(
    recipe, staged, tmp_path, capsys
):
    folder = reopened(staged.rl, tmp_path / "run", "rl", 3)
    with Run.create_or_open(folder, {}) as run:
        run.stage("rl").commit(3)  # as if killed after the last step, before the end was noted
    newest = folder / "checkpoints" / "rl" / "3"
    cut(newest / "model.safetensors")
    words = said(capsys, "rl", recipe, "--run", folder)
    assert re.search(rf"checkpoint {newest} is skipped: model\.safetensors has [\d,]+ bytes", words)
    assert outcome(folder, ["rl"]) == outcome(staged.rl, ["rl"])


def test_a_finished_stage_whose_checkpoint_is_damaged_is_not_replaced_by_an_older_one(
    recipe, staged, tmp_path, capsys
):
    folder = copied(staged.sft, tmp_path / "run")
    cut(folder / "checkpoints" / "sft_second" / "19" / "model.safetensors")
    message = refused(capsys, "measure", recipe, "--run", folder)
    assert f"checkpoint {folder}/checkpoints/sft_second/19 is damaged" in message
    assert "restore it from a copy" in message


def test_what_an_interrupted_process_left_is_gone_when_the_run_goes_on(recipe, half):
    checkpoints = half / "checkpoints" / "rl"
    (checkpoints / ".5.partial").mkdir()
    (checkpoints / ".5.partial" / "model.safetensors").write_text("half")
    (half / ".recipe.json.4194305.part").write_text("{")  # no process can have that number
    (half / ".report.html.1.part").write_text("<")  # somebody else is writing this
    assert forethought("rl", recipe, "--run", half) == 0
    assert [path.name for path in checkpoints.glob(".*")] == []
    assert [path.name for path in half.glob(".*")] == [".report.html.1.part"]


HELD_OUT = ("--sft.held_out=0.2", "--sft.held_out_every=4")


FEW = ("--sft.phases.0.steps=6", "--sft.phases.1.steps=2")


def test_held_out_demonstrations_are_measured_by_kind_of_token(recipe, staged, tmp_path, capsys):
    folder = copied(staged.collect, tmp_path / "run")
    words = said(capsys, "sft", recipe, "--run", folder, *HELD_OUT, *FEW)
    assert re.search(r"\n +1[0-9] more are held out and only measured", words)
    with Run.read(folder) as run:
        assert [step for step, _ in run.series("sft_first", "held_out/loss")] == [3, 5]
        assert {"held_out/loss/call", "held_out/accuracy/answer"} <= {*run.metrics("sft_first")}
        for _, share in run.series("sft_second", "held_out/accuracy"):
            assert 0 < share < 1


def test_a_phase_ends_with_the_weights_that_foretold_best(recipe, staged, tmp_path, capsys):
    folder = copied(staged.collect, tmp_path / "run")
    # Far too large a rate: it is worse after than before.
    worse = ("--sft.phases.0.optimizer.type=adamw", "--sft.phases.0.optimizer.rate=0.3")
    best = ("--sft.keep=best", "--sft.held_out_every=1", "--sft.keep_last=1")
    few = ("--sft.phases.0.steps=4", "--sft.phases.1.steps=1")
    words = said(capsys, "sft", recipe, "--run", folder, *HELD_OUT, *few, *worse, *best)
    with Run.read(folder) as run:
        losses = dict(run.series("sft_first", "held_out/loss"))
        chosen = run.document("sft_first", "chosen")["step"]
    assert chosen == min(losses, key=losses.get) != 3
    checkpoints = folder / "checkpoints" / "sft_first"
    assert f"phase first: weights are in {checkpoints}/{chosen}\n" in words
    assert sorted(path.name for path in checkpoints.iterdir()) == [str(chosen), "3"]


def test_the_best_needs_something_that_is_held_out(recipe, tmp_path, capsys):
    words = ("sft", recipe, "--run", tmp_path / "run")
    message = refused(capsys, *words, "--sft.keep=best")
    assert 'sft.keep = "best"' in message
    assert "sft.held_out = 0 holds nothing out" in message
    assert "sft.keep_best = 1" in refused(capsys, *words, "--sft.keep_best=1")


TRAINED_ON_A_SMALL_DISK = """
import shutil, sys
from pathlib import Path
from app.small import forethought

collected, disk, recipe = map(Path, sys.argv[1:])
shutil.copytree(collected, disk / "run")
words = ("sft", recipe, "--run", disk / "run", "--sft.save_every=2")
code = forethought(*words)
print(sorted(path.name for path in (disk / "run" / "checkpoints" / "sft_first").iterdir()))
raise SystemExit(code)
"""


def test_a_disk_that_fills_up_ends_the_run_with_a_message_and_code_2(recipe, staged, tmp_path):
    used = sum(path.stat().st_size for path in staged.collect.rglob("*") if path.is_file())
    one = staged.sft / "checkpoints" / "sft_first" / "39"
    checkpoint = sum(path.stat().st_size for path in one.iterdir())
    room = (used + 1.6 * checkpoint + 150_000) // 1000
    script = (TRAINED_ON_A_SMALL_DISK, staged.collect, tmp_path / "disk", recipe)
    done = on_small_disk(tmp_path / "disk", int(room), "-c", *script)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"forethought: checkpoint {tmp_path}/disk/run/checkpoints/sft_first/3: " in done.stderr
    assert "No space left on device" in done.stderr
    assert "as an earlier one" in done.stderr
    assert "then run the same command again: earlier checkpoints are whole" in done.stderr
    assert done.stdout.strip().splitlines()[-1] == "['1']"
