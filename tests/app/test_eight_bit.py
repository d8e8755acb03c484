"""Runs that need bitsandbytes: refused at once without it, and exact on resuming with it."""

import sys

import pytest

from app.small import copied, forethought, outcome, refused
from app.test_resumption import reopened
from forethought.journal.run import Run

PHASES = ("--sft.phases.0.optimizer.type=adamw_8bit", "--sft.phases.1.optimizer.type=adamw_8bit")
RL = ("--rl.optimizer.type=adamw_8bit",)
LARGE = ("--model.width=64", "--model.feed=128")
"""Matrices that are large enough to have moments of 8 bits."""

missing = pytest.mark.usefixtures("without_bitsandbytes")


@pytest.fixture
def without_bitsandbytes(monkeypatch):
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # Python takes it for absent


@missing
@pytest.mark.parametrize(
    ("override", "key"),
    [(PHASES[1], "sft.phases.1.optimizer.type"), (*RL, "rl.optimizer.type")],
)
def test_a_quickstart_without_the_package_is_refused_at_once(
    recipe, tmp_path, capsys, override, key
):
    folder = tmp_path / "run"
    message = refused(capsys, "quickstart", "--recipe", recipe, "--run", folder, override)
    assert f'{key} = "adamw_8bit": bitsandbytes is not installed; run pip install' in message
    assert not folder.exists()


@missing
def test_each_training_stage_asks_for_its_own_optimiser(recipe, staged, tmp_path, capsys):
    collected, measured = staged.collect, copied(staged.measure, tmp_path / "run")
    kept = (measured / "recipe.json").read_text()
    assert PHASES[0][2:].partition("=")[0] in refused(
        capsys, "sft", recipe, "--run", collected, PHASES[0]
    )
    assert RL[0][2:].partition("=")[0] in refused(capsys, "rl", recipe, "--run", measured, *RL)
    assert (measured / "recipe.json").read_text() == kept


@missing
def test_what_has_finished_needs_it_no_more(recipe, staged, tmp_path, capsys):
    folder = copied(staged.rl, tmp_path / "run")
    message = refused(capsys, "rl", recipe, "--run", folder, *RL)
    assert 'rl.optimizer.type was "adamw", is now "adamw_8bit"' in message


def test_a_run_that_was_stopped_in_each_stage_ends_as_if_undisturbed(recipe, staged, tmp_path):
    pytest.importorskip("bitsandbytes")
    words = (*LARGE, *PHASES, *RL)
    whole = copied(staged.collect, tmp_path / "whole")
    assert forethought("sft", recipe, "--run", whole, *words) == 0
    again = reopened(whole, tmp_path / "again", "sft_second", 13)
    for folder, commands in ((whole, ("measure", "rl")), (again, ("sft", "measure", "rl"))):
        for command in commands:
            assert forethought(command, recipe, "--run", folder, *words) == 0
    with Run.create_or_open(again, {}) as run:
        run.stage("rl").rewind(2)
    assert forethought("rl", recipe, "--run", again, *words) == 0
    assert outcome(again) == outcome(whole)
