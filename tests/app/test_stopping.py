"""Ctrl-C while the program is still being loaded ends it as it does later."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRESSED = """
import importlib, os, runpy, signal, sys

class Presser:
    def find_spec(self, name, path=None, target=None):
        if name == {library!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presser())
sys.argv = ["forethought", "doctor"]
"""
AS_A_MODULE = 'runpy.run_module("forethought", run_name="__main__")'
AS_A_SCRIPT = 'sys.exit(importlib.import_module("{}").{}())'


def installed():
    """What the script that is installed does."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    return AS_A_SCRIPT.format(*scripts["forethought"].split(":"))


@pytest.mark.parametrize("started", [AS_A_MODULE, installed()])
@pytest.mark.parametrize("library", ["rich.console", "pydantic"])
def test_control_c_while_the_program_is_loaded_is_one_line(started, library):
    words = [sys.executable, "-c", PRESSED.format(library=library) + started]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
    assert ended.stdout.strip().splitlines() == [
        "Stopped. What is finished is kept; the same command goes on from there."
    ]
