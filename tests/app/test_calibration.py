"""Who should sample is measured once a run, told, and kept; a recipe that says who is obeyed."""

import io
import json
import os
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace

import psutil
import pytest
import torch
from rich.console import Console

from forethought.app.calibration import (
    LEFT,
    ROWS,
    SLACK,
    Calibration,
    Trial,
    better_crew,
    lengths,
    room_for_workers,
    speed,
    trials,
)
from forethought.app.context import CALIBRATION, Context
from forethought.app.engine import affordable, worker_count
from forethought.app.memory import memory_needed
from forethought.app.show import Show
from forethought.core.errors import PolicyError, RecipeError
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import CLOSED, Port, Replica
from tiny import local_model, network


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


def test_the_better_crew_is_chosen_and_the_other_leaves_no_process():
    before = set(psutil.Process().children())
    crew, found = better_crew(local_model(), 2, torch.float32, None, 2)
    try:
        assert min(found.workers_rate, found.threads_rate) > 0
        assert isinstance(crew, ForkedCrew) == found.workers_win
        left = set(psutil.Process().children()) - before
        assert len(left) == (2 if found.workers_win else 0)
    finally:
        crew.close()


@pytest.mark.parametrize(
    ("small", "measured", "wins"),
    [
        (2**40, [50, 50, 90], True),  # the third time nothing disturbed them
        (2**40, [50, 50, 50], False),
        (2**40, [90], True),
        (0, [50], False),
    ],
)
def test_workers_of_a_small_model_are_measured_again_until_they_win(
    monkeypatch, small, measured, wins
):
    rates = iter([rate for workers in measured for rate in (workers, 100)])
    monkeypatch.setattr("forethought.app.calibration.SMALL", small)
    monkeypatch.setattr("forethought.app.calibration.rate", lambda together: next(rates))
    crew, found = better_crew(local_model(), 2, torch.float32, None, 2)
    crew.close()
    assert found.workers_win is wins
    assert found.workers_rate == max(measured)
    assert next(rates, None) is None


@pytest.mark.parametrize("replicas", [1, 2, 3, 8, 31, 32, 33, 64])
def test_any_number_of_replicas_are_measured_with_as_many_turns(replicas):
    dealt = trials(replicas)
    assert sum(trial.turns for trial in dealt) == ROWS
    assert sum(trial.last for trial in dealt) == ROWS // LEFT
    assert all(trial.turns >= max(1, trial.last) for trial in dealt)
    assert len(dealt) == min(replicas, ROWS)


def test_a_measurement_fits_into_every_context():
    for context in range(4, 200):
        opening, steps = lengths(context)
        assert min(opening, steps) >= 1
        assert opening + max(1, steps // 2) + 2 * steps <= context


@pytest.mark.parametrize("context", [4, 40, 64, 512])
def test_every_turn_is_measured_for_the_same_number_of_tokens(context):
    crew = LocalCrew(network(max_position_embeddings=context))
    (found,) = crew.run_now(speed, [Trial(turns=6, last=2)])
    crew.close()
    _, steps = lengths(context)
    assert found.tokens == steps * (6 + 2)
    assert found.seconds > 0


def test_a_measurement_can_be_put_away():
    model = network()
    port = Port(emit=lambda value: None, inbox=SimpleQueue())
    port.inbox.put(CLOSED)
    with pytest.raises(PolicyError, match="put away"):
        speed(Replica(model=model, decoder=Decoder(model)), Trial(turns=2, last=1), port)


@pytest.mark.parametrize("trained", [135_000_000, 2_000_000])
@pytest.mark.parametrize("room", [2**27, 2**30, 2 * 2**30, 8 * 2**30])
def test_workers_are_as_many_as_their_weights_and_gradients_have_room(trained, room):
    weights = 135_000_000
    found = room_for_workers(weights, trained, room)
    assert SLACK + 4 * (weights + (found + 1) * trained) > room
    assert found == 0 or SLACK + 4 * (weights + found * trained) <= room


def test_workers_that_shared_memory_has_no_room_for_are_refused(monkeypatch):
    model = local_model()
    room = SLACK + 3 * 4 * model.parameters  # the weights, and the gradients of two
    monkeypatch.setattr(
        "forethought.app.calibration.shutil.disk_usage", lambda folder: SimpleNamespace(free=room)
    )
    assert worker_count(model, ComputeSettings(workers=2)) == 2
    assert worker_count(model, ComputeSettings(workers="auto")) <= 2
    remedy = r"compute\.workers = 3: /dev/shm has room for 2 .* set compute\.workers = 2"
    with pytest.raises(RecipeError, match=remedy):
        worker_count(model, ComputeSettings(workers=3))


def test_where_memory_is_short_there_are_fewer_workers_or_none():
    needed = partial(memory_needed, local_model(), on_gpu=False)
    assert affordable(4, needed, needed(4)) == 4
    assert affordable(4, needed, needed(4) - 1) == 3
    assert affordable(4, needed, needed(1)) == 1
    assert affordable(4, needed, needed(0)) == affordable(0, needed, needed(4)) == 0


CHOICES = {
    (2**25 + 1, 200): "workers it is",
    (2**25 + 1, 111): "workers it is",
    (2**25 + 1, 109): "this process it is, which takes less memory",
    (2**25 + 1, 50): "this process it is",
    (2**25, 105): "workers it is",
    (2**25, 81): "workers it is, which agents and tools slow less",
    (2**25, 79): "this process it is",
    (1, 50): "this process it is",
}
"""By parameters and the rate of workers, where this process has 100."""


@pytest.mark.parametrize(("parameters", "workers"), CHOICES)
def test_workers_win_when_they_sample_as_much_as_makes_them_worth_their_memory(parameters, workers):
    said = CHOICES[parameters, workers]
    found = Calibration(workers_rate=workers, threads_rate=100, parameters=parameters)
    assert found.workers_win is said.startswith("workers")
    assert str(found).endswith(f"100: {said}")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
def test_a_run_is_calibrated_once_and_says_so(context, said, tmp_path):
    first = chosen(context, local_model())
    kept = json.loads((tmp_path / CALIBRATION).read_text())
    assert kept["workers"] == first
    assert kept["setting"] == f"--compute.workers={first}"
    assert f"({kept['setting']} repeats it)" in said.getvalue()
    assert said.getvalue().count("calibration: one-thread workers sample") == 1
    # What was found holds from then on: it is obeyed even where it says something else.
    (tmp_path / CALIBRATION).write_text(json.dumps(kept | {"workers": 1}))
    assert chosen(context, local_model()) == 1
    assert said.getvalue().count("calibration") == 1


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
@pytest.mark.parametrize(
    ("gain", "large", "precision", "told"),
    [
        (3.0, 1, "auto", True),
        (1.9, 1, "auto", False),
        (3.0, 2**40, "auto", False),
        (3.0, 1, "float32", False),
    ],
)
def test_numbers_that_this_processor_multiplies_faster_are_told_of(
    context, said, monkeypatch, gain, large, precision, told
):
    monkeypatch.setattr("forethought.learning.precision.bfloat16_gain", lambda: gain)
    monkeypatch.setattr("forethought.learning.precision.LARGE", large)
    context.recipe.compute = ComputeSettings(device="cpu", precision=precision)
    chosen(context, local_model())
    assert ("--compute.precision=bfloat16" in said.getvalue()) is told


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
@pytest.mark.parametrize("kept", ["", "{", "[]", '{"workers": 1}', '{"workers": 1, "cores": 99}'])
def test_what_was_found_elsewhere_or_damaged_is_found_again(context, said, tmp_path, kept):
    (tmp_path / CALIBRATION).write_text(kept)
    chosen(context, local_model())
    assert "calibration" in said.getvalue()
    assert json.loads((tmp_path / CALIBRATION).read_text())["workers_rate"] > 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: there is nothing to find")
def test_a_folder_where_what_was_found_should_be_kept_is_named(context, tmp_path):
    (tmp_path / CALIBRATION).mkdir()
    with pytest.raises(
        RecipeError, match=r"calibration\.json cannot.*remove or rename what stands"
    ):
        chosen(context, local_model())


def test_a_recipe_that_says_who_computes_is_obeyed_unmeasured(context, said, tmp_path):
    context.recipe.compute = ComputeSettings(device="cpu", workers=0)
    assert chosen(context, local_model()) == 0
    assert said.getvalue() == ""
    assert not (tmp_path / CALIBRATION).exists()
