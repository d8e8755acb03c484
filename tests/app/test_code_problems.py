"""Commands on problems whose answer is a program: from demonstrations to rewards for a part."""

import json
import logging
import random

import pytest
from benchmarks.small import RECIPE

from app.small import forethought, refused
from forethought.core.verdict import Outcome
from forethought.journal.run import Run
from forethought.tasks.programs import last_program

PARTIAL = "--rl.reward.partial=0.5"
LONGER = {
    'type = "file"': 'type = "code"',
    "max_tokens = 48": "max_tokens = 160",
    "max_tokens = 32": "max_tokens = 100",
    "context = 400": "context = 600",
    "longest = 300": "longest = 600",
    "steps = 40": "steps = 60",
}
"""Programs take more words than the small recipe's coins."""


def coins(count, kind):
    """Functions that only luck writes: 3 passes one test of two where the other expects 5."""
    rng = random.Random(kind)
    for number in range(count):
        side = rng.choice((3, 5))
        yield {
            "text": f"which of 3 and 5 is case {number}?",
            "code": f"def f(n):\n    return {side}",
            "test_list": [f"assert f(1) == {side}", "assert f(0) > 2"],
        }


def write_recipe(folder, **changes):
    """The small recipe with functions in place of coins, and its rows changed."""
    for kind, count in (("train", 90), ("held_out", 6)):
        rows = (json.dumps(row | changes) + "\n" for row in coins(count, kind))
        (folder / f"{kind}.jsonl").write_text("".join(rows))
    text = RECIPE.format(folder=folder)
    for short, long in LONGER.items():
        assert short in text
        text = text.replace(short, long)
    recipe = folder / "code.toml"
    recipe.write_text(text.replace('type = "code"', 'type = "code"\nshown_tests = 0'))
    return recipe


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder of a run of every stage."""
    folder = tmp_path_factory.mktemp("code")
    recipe = write_recipe(folder)
    assert forethought("quickstart", "--recipe", recipe, "--run", folder / "run", PARTIAL) == 0
    return folder / "run"


def attempts(folder, stage):
    with Run.read(folder) as run:
        return [episode for group in run.groups(stage) for episode in group.episodes]


def test_solutions_are_shown_with_a_real_call_and_answered_in_a_block(ran):
    shown = attempts(ran, "collect")
    assert {episode.verdict.outcome for episode in shown} == {Outcome.RIGHT}
    for episode in shown:
        (trajectory,) = episode.trajectories
        assert last_program(trajectory.turns[-1].message.text) == episode.problem.answer
        assert all(reply.text.strip() in ("3", "5") for reply in trajectory.replies[-1:])
    assert any(episode.trajectories[0].replies for episode in shown)


@pytest.mark.parametrize("stage", ["measure", "rl", "eval_before", "eval_after"])
def test_every_stage_grades_by_tests(ran, stage):
    scores = {episode.verdict.score for episode in attempts(ran, stage)}
    assert scores & {0.5, 1.0}
    assert scores <= {0.0, 0.5, 1.0}


def test_a_wrong_program_of_a_round_is_paid_for_the_tests_that_it_passed(ran):
    with Run.read(ran) as run:
        earned = {}
        for step in run.steps("rl"):
            rewards = run.rewards("rl", step)
            for group in run.groups("rl", step):
                for episode in group.episodes:
                    if episode.id in rewards:
                        score = episode.verdict.score
                        earned.setdefault(score, set()).add(rewards[episode.id]["partial"])
    assert earned[0.5] == {0.25}
    assert earned[1.0] == {0.0}


def test_without_solutions_collecting_is_refused_with_what_to_add(tmp_path, capsys):
    recipe = write_recipe(tmp_path, code="")
    message = refused(capsys, "collect", recipe, "--run", tmp_path / "run")
    assert "none of 64 problems comes with a program to show" in message
    assert "add a solution to them (`code`" in message
    assert "collect.teacher" in message
    free = '--collect.demonstrators.styles={"tool_free"=1.0}'
    assert "add a solution" in refused(capsys, "collect", recipe, "--run", tmp_path / "run", free)


def test_rows_that_cannot_be_checked_are_refused_or_left_out_and_counted(tmp_path, capsys, caplog):
    recipe = write_recipe(tmp_path)
    with (tmp_path / "train.jsonl").open("a") as file:
        for test in ("assert f(1) == f(2)", "assert all(f(n) for n in (1, 2))"):
            row = {"text": "?", "code": "def f(n):\n    return 3", "test_list": [test]}
            file.write(json.dumps(row) + "\n")
    words = ("collect", recipe, "--run", tmp_path / "run", "--collect.problems=8")
    message = refused(capsys, *words)
    assert "2 of 92 rows cannot be checked (the first: row 91: 'assert f(1) == f(2)'" in message
    assert 'problems.uncheckable = "leave_out"' in message
    out = "--problems.uncheckable=leave_out"
    with caplog.at_level(logging.WARNING):
        assert forethought(*words, out) == 0
    assert [one for one in caplog.messages if "2 of 92 rows are left out" in one] != []
