"""A recipe that nobody would write by hand is refused in one short message all the same."""

from pathlib import Path

import pytest

from app.small import refused
from forethought.app.recipe import checked, read_recipe
from forethought.core.errors import RecipeError

ODD_WORDS = {
    "a place of five thousand digits": (f"--sft.phases.{'1' * 5000}.steps=1", "no key as long"),
    "a key with a part that is empty": ("--rl..steps=3", r"--rl\.\.steps: a part of this key is"),
    "no key at all": ("--=3", "--: a part of this key is empty; give a key and a value"),
    "a place of a hundred digits": (f"--sft.phases.{'1' * 100}.steps=1", "no place 1111"),
    "a negative place": ("--sft.phases.-1.steps=1", "there is no place -1; the list has 2"),
    "a key of many parts": (f"--{'a.' * 5000}b=1", "there is no key as long"),
    "a key that is no text": ("--see\udcffd=1", "not UTF-8"),
    "a value that is no text": ("--seed=\udcff", "not UTF-8"),
    "lists without end": (f"--seed={'[' * 50_000}", "seed = .*valid integer"),
    "a number without end": (f"--rl.steps={'9' * 5000}", "rl.steps = "),
}


@pytest.mark.parametrize("case", ODD_WORDS)
def test_an_odd_word_is_answered_in_one_short_message(recipe, case):
    word, message = ODD_WORDS[case]
    with pytest.raises(RecipeError, match=message) as refusal:
        read_recipe(recipe, [word])
    assert len(str(refusal.value)) < 1000
    assert str(refusal.value).isprintable() or "\n" in str(refusal.value)


@pytest.mark.parametrize("value", [f"{'[' * 50_000}", f"{'9' * 5000}"], ids=["deep", "long"])
def test_a_file_that_its_reader_cannot_hold_is_no_toml(tmp_path, value):
    path = tmp_path / "odd.toml"
    path.write_text(f"seed = {value}")
    with pytest.raises(RecipeError, match=r"odd\.toml is not TOML.*mend that place"):
        read_recipe(path)


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="this system has no /dev/zero")
def test_a_file_without_end_is_not_read_to_its_end():
    with pytest.raises(RecipeError, match="longer than 1,000,000 characters; give the path"):
        read_recipe(Path("/dev/zero"))


def test_tables_in_tables_without_end_are_refused_in_one_short_message(recipe, tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text(recipe.read_text().replace("seed = 3", f"seed{'.a' * 2000} = 3"))
    with pytest.raises(RecipeError, match="seed = a table in tables without end") as refusal:
        read_recipe(path)
    assert len(str(refusal.value)) < 1000


def test_a_byte_order_mark_does_not_spoil_a_recipe(recipe):
    plain = read_recipe(recipe)
    recipe.write_bytes(b"\xef\xbb\xbf" + recipe.read_bytes())
    assert read_recipe(recipe) == plain


def test_an_empty_path_is_called_empty(capsys):
    assert "recipe: its path is empty" in refused(capsys, "collect", "")


def test_a_recipe_that_is_no_table_is_named_as_a_whole():
    with pytest.raises(RecipeError, match=r"here: .*\n  the recipe = \[1\]"):
        checked([1], "here")


BEYOND = {
    "model.width": 16_386,
    "model.layers": 257,
    "model.heads": 257,
    "model.vocabulary": 1_000_001,
    "model.context": 1_000_001,
    "compute.workers": 1025,
    "compute.threads": 1025,
    "sft.phases.0.batch": 65_537,
    "sft.phases.0.name": "n" * 65,
    "tool.memory_mb": 2**40,
    "tool.cpu_seconds": 2**63,
    "tool.processes": 2**31,
    "tool.wall_seconds": 1e300,
}


@pytest.mark.parametrize("key", BEYOND)
def test_a_size_that_nothing_can_hold_is_out_of_range(recipe, key):
    with pytest.raises(RecipeError, match=rf"{key}.* = .*(less than or equal|at most)"):
        read_recipe(recipe, [f"--{key}={BEYOND[key]}"])


@pytest.mark.parametrize("word", ["--tool.processes=1", "--tool.wall_seconds=0.01"])
def test_a_limit_under_which_no_program_could_start_is_refused(recipe, word):
    with pytest.raises(RecipeError, match="greater than or equal"):
        read_recipe(recipe, [word])
