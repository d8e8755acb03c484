"""A stage in float16, through the command line: it ends, tells its loss scale, and goes on."""

import json

import pytest

from app.small import copied, forethought, outcome
from app.test_resumption import reopened
from forethought.journal.run import Run

pytestmark = pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
HALF = "--compute.precision=float16"
LOUD = "--rl.loss.aggregation=token-sum"  # whose gradient is too large for the first scale


def scales(folder, stage):
    with Run.read(folder) as run:
        return [scale for _, scale in run.series(stage, "update/loss_scale")]


@pytest.fixture(scope="module")
def ended(recipe, staged, tmp_path_factory):
    """The folder of a run whose four rounds of RL were in float16."""
    folder = copied(staged.measure, tmp_path_factory.mktemp("half") / "run")
    assert forethought("rl", recipe, "--run", folder, HALF, LOUD) == 0
    return folder


def test_rl_in_float16_ends_and_tells_the_scale_that_it_found(ended):
    found = scales(ended, "rl")
    assert found
    assert found[-1] < 2.0**16
    with Run.read(ended) as run:
        assert run.stage("rl").finished
        assert {value for _, value in run.series("rl", "update/skipped")} == {0.0}


def test_rl_in_float16_goes_on_with_the_scale_that_it_had(recipe, ended, tmp_path):
    folder = reopened(ended, tmp_path / "run", "rl", 2)
    saved = json.loads((folder / "checkpoints" / "rl" / "1" / "state.json").read_text())
    assert saved["loss_scale"]["factor"] < 2.0**16
    assert forethought("rl", recipe, "--run", folder, HALF, LOUD) == 0
    assert outcome(folder, ["rl"]) == outcome(ended, ["rl"])


def test_imitation_in_float16_ends_and_tells_its_scale(recipe, staged, tmp_path):
    folder = copied(staged.collect, tmp_path / "run")
    few = ("--sft.phases.0.steps=3", "--sft.phases.1.steps=2")
    assert forethought("sft", recipe, "--run", folder, HALF, *few) == 0
    for phase, steps in (("sft_first", 3), ("sft_second", 2)):
        assert len(scales(folder, phase)) == steps
