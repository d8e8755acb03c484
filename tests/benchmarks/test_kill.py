"""What the benchmark of killed runs compares, and that it tells runs apart."""

import multiprocessing
import os
import time

import pytest
from benchmarks.kill import (
    CHANGES,
    NOWHERE,
    difference,
    is_saving,
    killed,
    outcome,
    stage_of,
    whole,
)
from benchmarks.small import write_recipe

from forethought.app.recipe import read_recipe
from forethought.journal.run import Run
from forethought.watch.tool import USAGE


@pytest.fixture
def run(tmp_path):
    """The folder of a run with one committed step and one checkpoint."""
    with Run.create_or_open(tmp_path / "run", {}) as run:
        stage = run.stage("rl")
        stage.log(0, {"loss": 1.0, "seconds/learn": time.monotonic()})
        stage.commit(0)
        (run.checkpoints / "rl" / "0").mkdir(parents=True)
        (run.checkpoints / "rl" / "0" / "model.safetensors").write_bytes(b"weights")
        (run.checkpoints / "rl" / "0" / "README.md").write_text(f"{time.monotonic()}")
    return tmp_path / "run"


def test_a_run_is_equal_to_itself_whatever_the_time(run):
    before = outcome(run)
    assert before.keys() == {"rl, metric loss", "checkpoints/rl/0/model.safetensors"}
    with Run.create_or_open(run, {}) as again:
        stage = again.stage("rl")
        stage.log(0, {"loss": 1.0, "seconds/learn": -1.0})
        stage.commit(0)
        stage.put(USAGE, {"queued": time.monotonic()})
    assert difference(before, outcome(run)) == ""


def test_one_bit_of_a_weight_or_a_number_is_told(run):
    before = outcome(run)
    weights = run / "checkpoints" / "rl" / "0" / "model.safetensors"
    weights.write_bytes(b"veights")
    assert difference(before, outcome(run)).startswith(
        "1 parts, first checkpoints/rl/0/model.safetensors: "
    )
    weights.write_bytes(b"weights")
    assert difference(before, outcome(run)) == ""
    with Run.create_or_open(run, {}) as again:
        stage = again.stage("rl")
        stage.log(0, {"loss": 1.0 + 2**-52})
        stage.commit(0)
    assert "rl, metric loss: [(0, 1.0)] and [(0, 1.0000000000000002)]" in difference(
        before, outcome(run)
    )


def test_where_a_run_stands_is_read_from_its_journal(run, tmp_path):
    assert stage_of(run) == "rl, 1 steps"
    assert stage_of(tmp_path / "nothing") == NOWHERE
    assert not is_saving(run)
    (run / "checkpoints" / "rl" / ".1.partial").mkdir()
    assert is_saving(run)


def test_the_recipe_of_the_benchmark_is_one(tmp_path):
    recipe = read_recipe(write_recipe(tmp_path), CHANGES)
    assert recipe.sft.keep == "best"
    assert recipe.compute.deterministic


@pytest.fixture
def endless(tmp_path, monkeypatch):
    """A recipe that a run never has done reading, of runs that are soon given up."""
    monkeypatch.setattr("benchmarks.kill.MOST_SECONDS", 0.5)
    os.mkfifo(tmp_path / "recipe.toml")
    return tmp_path / "recipe.toml"


def test_a_run_that_never_begins_is_given_up_and_ended(endless, tmp_path):
    with pytest.raises(SystemExit, match=r"has not begun after 0\.5 s"):
        whole(endless, tmp_path / "nothing")
    assert multiprocessing.active_children() == []


def test_a_resumed_run_that_never_ends_is_given_up_and_ended(endless, run):
    with pytest.raises(SystemExit, match=r"has not ended after 0\.5 s"):
        whole(endless, run)
    with pytest.raises(SystemExit, match=r"has saved no checkpoint and not ended after 0\.5 s"):
        killed(endless, run, 0.0, saving=True)
    assert multiprocessing.active_children() == []
