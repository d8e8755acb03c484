"""The attempts that a report tells are the ones that its headings promise."""

import pytest

from forethought.core.messages import ToolStatus
from forethought.core.trajectory import Group
from forethought.core.verdict import Outcome, Verdict
from forethought.evaluation.exam import summarise_exam
from forethought.journal.run import Run
from forethought.watch.exams import read_exams
from forethought.watch.stories import shown, stories
from watch.synthetic_run import attempt, called, problem, said

RIGHT, WRONG = Verdict.right("1"), Verdict.wrong("2", "2 is not 1")


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


def sit(run, name, attempts):
    """Keep (turns, verdict) by problem number as an exam called `name`, all in one stage."""
    groups = [
        Group(
            id=f"{name}/sampled/{number}",
            problem=problem(number),
            episodes=(attempt(f"{name}/{number}", problem(number), turns, verdict),),
        )
        for number, (turns, verdict) in attempts.items()
    ]
    journal = run.stage("eval")
    journal.keep(journal.next_step, groups)
    journal.commit(journal.next_step)
    result = summarise_exam(name, groups, groups, {})
    journal.put(f"exam/{name}", result.model_dump(mode="json"))


def test_improvement_pairs_a_wrong_attempt_with_a_right_one_at_the_same_problem(run):
    sit(run, "before", {0: ([said("2")], WRONG), 1: ([said("1")], RIGHT), 2: ([said("2")], WRONG)})
    called_well = [called("print(1)", "1"), said("1")]
    sit(run, "after", {0: ([said("2")], WRONG), 1: ([said("1")], RIGHT), 2: (called_well, RIGHT)})
    improved, failed = stories(run, read_exams(run))
    assert [side.outcome for side in improved.sides] == [Outcome.WRONG, Outcome.RIGHT]
    assert improved.domain == problem(2).domain
    assert improved.sides[1].lines[0].calls[0].code == "print(1)"
    assert failed.title == "Still wrong"
    assert failed.domain == problem(0).domain


def test_recovery_is_a_failed_call_then_one_that_went_well_then_the_right_answer(run):
    bad, good = called("print(x)", "NameError", ToolStatus.MODEL_ERROR), called("print(1)", "1")
    sit(
        run,
        "after",
        {
            0: ([good, bad, said("1")], RIGHT),
            1: ([bad, good, said("2")], WRONG),
            2: ([bad, good, said("1")], RIGHT),
        },
    )
    recovered, failed = stories(run, read_exams(run))
    assert recovered.title == "Recovered from an error"
    assert recovered.domain == problem(2).domain
    assert failed.domain == problem(1).domain
    assert [line.status for line in recovered.sides[0].lines] == ["", "model_error", "", "ok", ""]


def test_attempts_not_measured_are_never_told(run):
    broken = Verdict.not_measured("the sandbox died")
    sit(run, "after", {0: ([said("?")], broken), 1: ([said("1")], RIGHT)})
    assert stories(run, read_exams(run)) == []


def test_a_run_without_exams_tells_of_its_latest_practice(run):
    journal = run.stage("rl")
    for step, answer in enumerate(("old", "new")):
        tried = attempt(f"{step}", problem(0), [said(answer)], WRONG)
        journal.keep(step, [Group(id=f"{step}", problem=problem(0), episodes=(tried,))])
        journal.commit(step)
    journal.commit(2)
    [failed] = stories(run, [])
    assert failed.sides[0].lines[0].text == "new"


def test_long_text_loses_its_middle_and_says_how_much():
    cut = shown("a" * 5000 + "b" * 5000)
    assert cut.startswith("a" * 1500 + "\n… 7,000 characters")
    assert cut.endswith("b" * 1500)


def test_control_characters_become_visible_and_lines_stay_lines():
    assert shown("a\n\tb\0\x1b\x7f\u202e") == "a\n\tb␀␛␡\N{REPLACEMENT CHARACTER}"
