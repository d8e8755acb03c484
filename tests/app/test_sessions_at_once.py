"""Every attempt that is open may hold a session: a recipe that allows too few is refused."""

import pytest

from app.small import refused
from forethought.app.recipe import read_recipe
from forethought.core.errors import RecipeError

SESSIONS = "--tool.state=session"


def test_fewer_sessions_than_attempts_are_refused_with_both_remedies(recipe):
    words = (SESSIONS, "--tool.max_sessions=63", "--compute.at_once=64")
    with pytest.raises(RecipeError, match=r"tool\.max_sessions = 63.*compute\.at_once = 64.*raise"):
        read_recipe(recipe, words)


def test_a_command_says_so_before_it_begins(recipe, capsys, tmp_path):
    words = (SESSIONS, "--tool.max_sessions=1", "--run", tmp_path / "run")
    assert "tool.max_sessions" in refused(capsys, "collect", recipe, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        (SESSIONS, "--tool.max_sessions=64", "--compute.at_once=64"),
        (SESSIONS, "--compute.at_once=128"),
        ("--tool.state=stateless", "--tool.max_sessions=1"),
    ],
)
def test_as_many_are_enough_and_without_sessions_any_number_is(recipe, words):
    assert read_recipe(recipe, words).tool.max_sessions >= 1
