"""One run is made with one recipe: another is refused, and the one that made it is kept."""

import json

import pytest

from app.small import copied, forethought, refused


@pytest.mark.parametrize(
    ("command", "override", "words"),
    [
        ("rl", "--rl.loss.clip_low=0.1", "rl.loss.clip_low was not set, is now 0.1"),
        ("rl", "--seed=4", "seed was 3, is now 4"),
        ("sft", "--sft.phases.1.batch=4", "sft.phases.1.batch was 8, is now 4"),
        ("measure", "--measure.attempts=5", "measure.attempts was 4, is now 5"),
        ("collect", "--agent.max_turns=5", "agent.max_turns was 2, is now 5"),
    ],
)
def test_a_run_begun_with_another_setting_names_it_with_both_values(
    recipe, staged, tmp_path, capsys, command, override, words
):
    folder = copied(staged.rl, tmp_path / "run")
    kept = (folder / "recipe.json").read_text()
    message = refused(capsys, command, recipe, "--run", folder, override)
    assert words in message
    assert "Restore them, or name another folder with --run" in message
    assert (folder / "recipe.json").read_text() == kept


@pytest.mark.parametrize(
    ("after", "changed", "words"),
    [
        ("collect", ("sft", "--agent.max_turns=5"), "agent.max_turns was 2, is now 5"),
        ("collect", ("sft", "--sft.pilot_problems=5"), "set_apart.pilot was 4, is now 5"),
        ("sft", ("measure", "--sft.phases.0.batch=4"), "sft.phases.0.batch was 8, is now 4"),
        ("measure", ("rl", "--collect.problems=65"), "collect.problems was 64, is now 65"),
        ("rl", ("eval", "--rl.group_size=3"), "rl.group_size was 4, is now 3"),
        ("sft", ("eval", "--model.layers=2"), "model.layers was 1, is now 2"),
    ],
)
def test_a_stage_that_builds_on_another_recipe_is_refused_and_keeps_the_one_that_made_it(
    recipe, staged, tmp_path, capsys, after, changed, words
):
    folder, (command, override) = copied(getattr(staged, after), tmp_path / "run"), changed
    kept = (folder / "recipe.json").read_text()
    message = refused(capsys, command, recipe, "--run", folder, override)
    assert words in message
    assert "Restore them, or name another folder with --run" in message
    assert (folder / "recipe.json").read_text() == kept


def test_a_later_stage_may_have_other_settings_of_its_own(recipe, staged, tmp_path):
    folder = copied(staged.measure, tmp_path / "run")
    words = ("--rl.steps=1", "--compute.at_once=7", "--eval.attempts=1")
    assert forethought("rl", recipe, "--run", folder, *words) == 0
    kept = json.loads((folder / "recipe.json").read_text())
    assert (kept["rl"]["steps"], kept["compute"]["at_once"]) == (1, 7)
