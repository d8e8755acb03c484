"""When infrastructure breaks, a stage stops rather than taking what is left for the whole."""

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from app.small import copied, forethought, refused
from app.test_other_models import answers, remote
from forethought.app.context import MEASURE, Context
from forethought.app.recipe import read_recipe
from forethought.app.show import Show
from forethought.app.stages.measure import attempt_candidates
from forethought.app.stages.sft import pilots
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.core.verdict import Verdict
from forethought.journal.run import Run
from forethought.journal.status import reported
from policy.endpoint import serving
from scripted import ScriptedPolicy, ScriptedSolver, call, only, says, tool_agent


def breaking(share):
    """A solver of which one attempt in `share` cannot be measured."""

    def verdict(problem, key):
        number = key.turn_seed(0)
        return Verdict.not_measured("no sandbox") if number % share == 0 else Verdict.right()

    return ScriptedSolver(verdict)


@pytest.fixture
def measuring(recipe, staged, tmp_path):
    """A run after SFT, and who works on it."""
    chosen = read_recipe(recipe, ["--measure.attempts=100"])
    folder = copied(staged.sft, tmp_path / "run")
    with Run.create_or_open(folder, chosen.model_dump(mode="json")) as run:
        yield Context(chosen, run, Show(Console(file=io.StringIO())))


def test_a_measurement_of_which_too_much_broke_stops_before_its_step_is_kept(measuring):
    stage = measuring.begin("measure", MEASURE)
    words = r"of 800 attempts \(\d+%\) were not measured, .* = 0\.1; .*no sandbox\. Mend that"
    with pytest.raises(RecipeError, match=words):
        asyncio.run(attempt_candidates(measuring, stage, breaking(5)))
    assert stage.next_step == 0
    asyncio.run(attempt_candidates(measuring, stage, breaking(20)))
    assert stage.next_step == 1


def calling_then_breaking(share):
    """An agent of which one attempt in `share` breaks after its first call."""

    def script(key):
        broken = key.turn_seed(0) % share == 0
        return [says("", call()), KeyError("x") if broken else says("42")]

    return tool_agent(ScriptedPolicy(script))


def test_the_traceback_of_attempts_that_broke_is_kept_whether_or_not_their_step_is(measuring):
    run, stage = measuring.run, measuring.begin("measure", MEASURE)
    words = r"KeyError: 'x'\. .* is in .*/failure\.txt$"
    with pytest.raises(UnmeasuredError, match=words), reported(run, "measure"):
        asyncio.run(attempt_candidates(measuring, stage, calling_then_breaking(5)))
    kept = (run.path / "failure.txt").read_text()
    assert kept.startswith("stage measure, step 0: ")
    with reported(run, "measure"):
        asyncio.run(attempt_candidates(measuring, stage, calling_then_breaking(20)))
    run.close()
    with Run.read(run.path) as reopened:
        episodes = [one for group in reopened.groups("measure") for one in group.episodes]
    lost = [one for one in episodes if not one.measured]
    assert 0 < len(lost) < len(episodes) == 800
    assert not (run.path / "failure.txt").exists()
    for text in (kept, *(only(one).error for one in lost)):
        assert "Traceback (most recent call last)" in text
        assert ", in speak\n" in text  # where it broke
        assert "\nKeyError: 'x'\n" in text
        assert text.splitlines()[-1].endswith("policy: KeyError: 'x'")
        assert "CancelledError" not in text


@pytest.mark.parametrize("share", [1, 2])
def test_a_pilot_that_cannot_be_measured_stops_the_phase(measuring, share):
    pilot = pilots(measuring, breaking(share), measuring.last_phase)
    words = r"of 4 attempts .* the limit of a pilot = 0\.1; .*no sandbox"
    with pytest.raises(RecipeError, match=words):
        for step in range(8):
            asyncio.run(pilot(step))


def test_a_pilot_that_is_measured_has_its_numbers(measuring):
    solver = ScriptedSolver(lambda problem, key: Verdict.right())
    found = asyncio.run(pilots(measuring, solver, measuring.last_phase)(0))
    assert found == {"pilot/sampled": 1.0, "pilot/calls": 0.0}
    assert len(solver.attempted) == 4


def test_collection_stops_when_its_teacher_breaks_and_goes_on_when_it_is_well(
    recipe, tmp_path, capsys
):
    folder = tmp_path / "run"
    broken = [(500, {})]
    with serving(*answers("so \\boxed{3}", 8), *broken * 2) as endpoint:
        teacher = f"--collect.teacher={remote(endpoint, retries=0)}"
        words = ("collect", recipe, "--run", folder, "--collect.problems=10", teacher)
        message = refused(capsys, *words)
        assert "2 of 10 attempts (20%) were not measured, more than the limit" in message
        named = Path(message.strip().rpartition(" is in ")[2])
        assert named == folder / "failure.txt"
        assert "Traceback (most recent call last)" in named.read_text()
        endpoint.answers = [*answers("so \\boxed{3}", 9), *broken]
        assert forethought(*words) == 0
    said = capsys.readouterr().out
    assert " right, " in said
    assert " wrong, 1 not measured) are in " in said
    with Run.read(folder) as run:
        ((_, accuracy),) = run.series("collect", "accuracy")
        measured = [one.right for group in run.groups("collect") for one in group.measured]
    assert accuracy == pytest.approx(sum(measured) / 9)
