"""Runs that several tests look at; they copy a run before they change it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.small import write_recipe

from app.interrupted import LONG
from app.small import copied, forethought, logged, outcome


@pytest.fixture(scope="session", autouse=True)
def importable():
    """Processes that tests start find the package where the tests find it."""
    before = os.environ.get("PYTHONPATH")
    source = str(Path(__file__).resolve().parents[2] / "src")
    os.environ["PYTHONPATH"] = source if before is None else f"{source}{os.pathsep}{before}"
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """The path of the small recipe."""
    return write_recipe(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def whole(recipe, tmp_path_factory):
    """The folder of a whole quickstart that nothing interrupted; a log of it is beside it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    words = ("quickstart", "--recipe", recipe, "--run", folder)
    assert logged(*words, log=folder.with_name("log")) == 0
    return folder


@pytest.fixture(scope="session")
def undisturbed(recipe, tmp_path_factory):
    """What a longer run comes to when it is left alone."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert forethought("quickstart", "--recipe", recipe, "--run", folder, *LONG) == 0
    return outcome(folder)


@pytest.fixture(scope="session")
def staged(recipe, tmp_path_factory):
    """One run made by a command a stage: its folder as each command left it."""
    place = tmp_path_factory.mktemp("staged")
    folders = {}
    for command in ("collect", "sft", "measure", "rl", "eval"):
        assert forethought(command, recipe, "--run", place / "run") == 0
        folders[command] = copied(place / "run", place / f"after_{command}")
    return SimpleNamespace(**folders)
