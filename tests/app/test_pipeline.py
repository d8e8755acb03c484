"""The whole pipeline: from a recipe to a report, in one command or in five."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from app.small import STAGES, TRAINED, copied, forethought, outcome
from forethought.app.recipe import read_recipe
from forethought.journal.run import Run


def test_a_quickstart_finishes_every_stage(whole):
    with Run.read(whole) as run:
        assert [stage.name for stage in run.stages()] == [*STAGES, "eval_after"]
        assert all(stage.finished for stage in run.stages())


def test_a_quickstart_ends_with_a_report_that_says_where_it_is(recipe, whole, tmp_path, capsys):
    folder = copied(whole, tmp_path / "run")
    (folder / "report.html").unlink()
    assert forethought("quickstart", "--recipe", recipe, "--run", folder) == 0
    said = capsys.readouterr().out
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert re.search(rf"Open the report +{re.escape(str(folder / 'report.html'))}\n", said)
    assert f"forethought report {folder}" in said
    assert re.search(r"avg@\d+ +[^ ]+ points \[.+\] from before to after\n", said)
    assert "forethought recipe > my.toml" in said


def test_a_finished_run_is_not_repeated_and_says_so(recipe, whole, tmp_path, capsys):
    folder = copied(whole, tmp_path / "run")
    before = outcome(folder)
    with Run.read(folder) as run:
        times = [(stage.begun_at, stage.ended_at) for stage in run.stages()]
    assert forethought("quickstart", "--recipe", recipe, "--run", folder) == 0
    with Run.read(folder) as run:
        assert [(stage.begun_at, stage.ended_at) for stage in run.stages()] == times
    assert outcome(folder) == before
    said = capsys.readouterr().out
    for stage in (*STAGES, "eval_after"):
        assert f"{stage}: done before, not repeated" in said


def test_a_command_a_stage_gives_the_same_run_as_the_quickstart(whole, staged):
    alone, together = outcome(staged.eval), outcome(whole)
    assert alone == together
    assert all(together.weights[stage] for stage in TRAINED)
    assert together.weights["sft_second"] != together.weights["rl"]


def test_a_run_learns_something(whole):
    with Run.read(whole) as run:
        losses = [value for _, value in run.series("sft_first", "loss")]
    assert losses[-1] < 0.5 * losses[0]


def test_each_stage_says_which_command_comes_next(recipe, staged, tmp_path, capsys):
    folder = copied(staged.eval, tmp_path / "run")
    same = f"{recipe} --run {folder} --seed 3"
    for command, following in (
        ("collect", f"sft {same}"),
        ("sft", f"measure {same}"),
        ("measure", f"rl {same}"),
        ("rl", f"eval {same}"),
        ("eval", f"report {folder}"),
    ):
        assert forethought(command, recipe, "--run", folder, "--seed", "3") == 0
        said = capsys.readouterr().out
        assert re.search(rf"Next: .*\bforethought {re.escape(following)}\n", said)


def test_a_report_can_be_written_again(whole, tmp_path, capsys):
    folder = copied(whole, tmp_path / "run")
    (folder / "report.html").unlink()
    assert forethought("report", folder) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert (folder / "report.html").stat().st_size > 1000


def test_a_report_of_an_unfinished_run_does_not_say_done(recipe, whole, tmp_path, capsys):
    folder = copied(whole, tmp_path / "run")
    with Run.create_or_open(folder, json.loads((folder / "recipe.json").read_text())) as run:
        run.stage("another").begin({})
    capsys.readouterr()
    other = copied(whole, tmp_path / "other")
    words = shlex.join(["quickstart", "--recipe", str(recipe), "--run", str(folder)])
    on, out = f"Go on if stopped {words}", f"Export the model export {other} other-model"
    for one, heading, told, not_told in ((folder, "So far", on, out), (other, "Done", out, on)):
        assert forethought("report", one) == 0
        said = capsys.readouterr().out
        assert heading in said.splitlines()
        lines = [
            re.sub(r" +\S*( -m)? ?\bforethought ", " ", line.strip()) for line in said.splitlines()
        ]
        assert any(line.startswith(told) for line in lines)
        assert not any(line.startswith(not_told) for line in lines)
        assert "The sandbox here doctor sandbox" in lines


def test_a_report_of_a_run_without_a_model_names_no_way_to_take_it(staged, tmp_path, capsys):
    assert forethought("report", copied(staged.collect, tmp_path / "run")) == 0
    assert "Export the model" not in capsys.readouterr().out


def test_a_report_is_written_without_torch(whole, tmp_path):
    folder = copied(whole, tmp_path / "run")
    program = (
        "import sys; from forethought.app.cli import main; "
        f"code = main(['report', {str(folder)!r}]); "
        "sys.exit(code or ('torch' in sys.modules) * 3)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("target", "steps", "said"),
    [
        ("0.0", 20, "phase first ended early, after 20 of 40 steps: pilot accuracy"),
        ("1.0", 40, "phase first ended after 40 of 40 steps without reaching its target: pilot"),
    ],
)
def test_a_phase_with_a_target_says_why_it_ended(
    recipe, staged, tmp_path, target, steps, said, capsys
):
    folder = copied(staged.collect, tmp_path / "run")
    words = ("--sft.phases.0.stop_at", target, "--sft.phases.1.steps=2")
    assert forethought("sft", recipe, "--run", folder, *words) == 0
    told = capsys.readouterr().out
    assert said in told
    assert f"phase first: {steps}/40  loss " in told
    assert "phase second: 2/2  loss " in told
    assert "phase second ended" not in told


def test_every_bar_in_a_log_ends_with_its_total(whole):
    said = whole.with_name("log").read_text(encoding="utf-8")
    for line in ("recording: 64/64", "measuring: 8/8", "rounds: 4/4"):
        assert f"  {line}" in said
    assert said.count("  sitting: 12/12\n") == 3


def test_the_printed_recipe_is_a_recipe(tmp_path, capsys):
    assert forethought("recipe") == 0
    printed = tmp_path / "my.toml"
    printed.write_text(capsys.readouterr().out, encoding="utf-8")
    assert read_recipe(printed).model.type == "fresh"


def test_the_recipe_that_a_run_keeps_is_enough_to_repeat_it(recipe, whole):
    with Run.read(whole) as run:
        assert run.recipe == read_recipe(recipe).model_dump(mode="json")


@pytest.mark.parametrize("name", ["odd [bold] name", "näme"])
def test_a_folder_may_have_any_name(recipe, tmp_path, name, capsys):
    folder = tmp_path / name / ("long" * 20)
    assert forethought("collect", recipe, "--run", folder, "--collect.problems", "1") == 0
    assert f"run folder: {folder}\n" in capsys.readouterr().out
    assert (folder / "recipe.json").is_file()
