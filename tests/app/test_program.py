"""Commands that are printed can be typed where the person stands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from forethought.app.program import program


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A program called forethought in a virtual environment below the current directory."""
    path = tmp_path / "a project" / ".venv" / "bin" / "forethought"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"#!{sys.executable}\n"
        "from forethought.app.program import spoken\n"
        "print(spoken('report', 'runs/a run'))\n"
    )
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path / "a project")
    monkeypatch.setenv("PATH", os.defpath)
    return path


def test_a_program_that_the_search_path_finds_is_its_name_alone(script, monkeypatch):
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    assert program(script) == ["forethought"]


def test_a_link_on_the_search_path_to_the_program_will_do(script, tmp_path, monkeypatch):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "forethought").symlink_to(script)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert program(script) == ["forethought"]


def test_another_program_of_that_name_on_the_search_path_is_not_taken(
    script, tmp_path, monkeypatch
):
    other = tmp_path / "other" / "forethought"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert program(script) == [".venv/bin/forethought"]


@pytest.mark.parametrize("started", [".venv/bin/forethought", "../a project/.venv/bin/forethought"])
def test_a_program_off_the_search_path_is_the_shortest_path_to_it(script, started):
    assert program(script) == program(Path(started)) == [".venv/bin/forethought"]


def test_far_away_the_absolute_path_is_the_shorter_one(script, tmp_path, monkeypatch):
    far = tmp_path.joinpath(*["deep"] * (len(str(script)) // 3 + 1))
    far.mkdir(parents=True)
    monkeypatch.chdir(far)
    assert program(script) == [str(script)]


def test_a_program_in_the_current_directory_is_not_searched_for(script, monkeypatch):
    monkeypatch.chdir(script.parent)
    assert program(script) == ["./forethought"]


def test_what_is_no_such_script_is_started_as_a_module(tmp_path):
    for started in (Path("pytest"), tmp_path / "forethought"):
        interpreter, *rest = program(started)
        assert Path(interpreter).samefile(sys.executable)
        assert rest == ["-m", "forethought"]


def test_a_printed_command_runs_as_it_is_printed(script):
    first = subprocess.run([script], capture_output=True, text=True, check=True).stdout
    assert shlex.split(first) == [".venv/bin/forethought", "report", "runs/a run"]
    assert (
        subprocess.run(first, shell=True, capture_output=True, text=True, check=True).stdout
        == first
    )
