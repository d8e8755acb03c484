"""Who samples fastest is measured once a run, told, and kept; a recipe that says who is obeyed."""

import io
import json
import os
from types import SimpleNamespace

import psutil
import pytest
import torch
from rich.console import Console

from forethought.app.calibration import Calibration, fastest_crew
from forethought.app.context import CALIBRATION, Context
from forethought.app.show import Show
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.crew import ForkedCrew
from tiny import local_model


@pytest.fixture
def said():
    return io.StringIO()


@pytest.fixture
def context(tmp_path, said):
    """As much of a run as an engine asks for."""
    return Context(
        SimpleNamespace(compute=ComputeSettings(device="cpu"), optimizers=()),
        SimpleNamespace(path=tmp_path),
        Show(console=Console(file=said, width=200)),
    )


def chosen(context, model):
    with context.engine(model) as engine:
        return engine.workers


def test_the_faster_crew_is_chosen_and_the_other_leaves_no_process():
    before = set(psutil.Process().children())
    crew, found = fastest_crew(local_model(), 2, torch.float32, None, 2)
    try:
        assert min(found.workers_rate, found.threads_rate) > 0
        assert isinstance(crew, ForkedCrew) == found.workers_win
        left = set(psutil.Process().children()) - before
        assert len(left) == (2 if found.workers_win else 0)
    finally:
        crew.close()


@pytest.mark.parametrize(("workers", "threads", "win"), [(2.0, 1.0, True), (1.0, 2.0, False)])
def test_workers_win_when_they_sample_more(workers, threads, win):
    assert Calibration(workers_rate=workers, threads_rate=threads).workers_win is win


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
def test_a_run_is_calibrated_once_and_says_so(context, said, tmp_path):
    first = chosen(context, local_model())
    kept = json.loads((tmp_path / CALIBRATION).read_text())
    assert kept["workers"] == first
    assert said.getvalue().count("calibration: one-thread workers sample") == 1
    # What was found holds from then on: it is obeyed even where it says something else.
    (tmp_path / CALIBRATION).write_text(json.dumps(kept | {"workers": 1}))
    assert chosen(context, local_model()) == 1
    assert said.getvalue().count("calibration") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
@pytest.mark.parametrize("kept", ["", "{", "[]", '{"workers": 1}', '{"workers": 1, "cores": 99}'])
def test_what_was_found_elsewhere_or_damaged_is_found_again(context, said, tmp_path, kept):
    (tmp_path / CALIBRATION).write_text(kept)
    chosen(context, local_model())
    assert "calibration" in said.getvalue()
    assert json.loads((tmp_path / CALIBRATION).read_text())["workers_rate"] > 0


def test_a_recipe_that_says_who_computes_is_obeyed_unmeasured(context, said, tmp_path):
    context.recipe.compute = ComputeSettings(device="cpu", workers=0)
    assert chosen(context, local_model()) == 0
    assert said.getvalue() == ""
    assert not (tmp_path / CALIBRATION).exists()
