"""The attempts that a report tells are the ones that its headings promise."""

import pytest

from forethought.core.messages import ToolStatus
from forethought.core.trajectory import Group
from forethought.core.verdict import Outcome, Verdict
from forethought.evaluation.exam import summarise_exam
from forethought.journal.run import Run
from forethought.watch.attempts import read_attempts
from forethought.watch.exams import read_exams, starting_exam
from forethought.watch.report import report_html
from forethought.watch.stories import shown, stories
from watch.synthetic_run import attempt, called, problem, said

RIGHT, WRONG = Verdict.right("1"), Verdict.wrong("2", "2 is not 1")


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


def sit(run, name, attempts):
    """Keep (turns, verdict) by problem number as an exam called `name`, all in one stage.

    A list holds several attempts at the problem.
    """
    groups = [
        Group(
            id=f"{name}/sampled/{number}",
            problem=problem(number),
            episodes=tuple(
                attempt(f"{name}/{number}/{place}", problem(number), turns, verdict)
                for place, (turns, verdict) in enumerate(each if isinstance(each, list) else [each])
            ),
        )
        for number, each in attempts.items()
    ]
    journal = run.stage("eval")
    journal.keep(journal.next_step, groups)
    journal.commit(journal.next_step)
    result = summarise_exam(name, groups, groups, {})
    journal.put(f"exam/{name}", result.model_dump(mode="json"))


def read(run):
    """What a run's report gives to read."""
    exams = read_exams(run)
    start, last = starting_exam(exams), exams[-1] if exams else None
    return stories(run, read_attempts(run, start), read_attempts(run, last))


def told(run):
    """The stories of a run as its report tells them."""
    return read(run).stories


def test_improvement_pairs_a_wrong_attempt_with_a_right_one_at_the_same_problem(run):
    sit(run, "before", {0: ([said("2")], WRONG), 1: ([said("1")], RIGHT), 2: ([said("2")], WRONG)})
    called_well = [called("print(1)", "1"), said("1")]
    sit(run, "after", {0: ([said("2")], WRONG), 1: ([said("1")], RIGHT), 2: (called_well, RIGHT)})
    improved, failed = told(run)
    assert [side.outcome for side in improved.sides] == [Outcome.WRONG, Outcome.RIGHT]
    assert improved.domain == problem(2).domain
    assert improved.sides[1].lines[0].calls[0].code == "print(1)"
    assert failed.title == "Still wrong"
    assert failed.domain == problem(0).domain


def test_a_problem_whose_pass_rate_fell_or_stayed_is_no_improvement(run):
    good, bad = ([said("1")], RIGHT), ([said("2")], WRONG)
    before = {0: [good, good, bad], 1: [bad, good, bad], 2: [bad, bad, good]}
    sit(run, "before", before)
    sit(run, "after", {0: [good, bad, bad], 1: [good, bad, bad], 2: [bad, good, good]})
    improved, _ = told(run)
    assert improved.title == "Wrong before, right after"
    assert improved.domain == problem(2).domain
    assert "33.3 % were right before and 66.7 % after" in improved.remark


def test_a_run_that_got_worse_everywhere_tells_of_no_improvement(run):
    good, bad = ([said("1")], RIGHT), ([said("2")], WRONG)
    sit(run, "before", {number: [good, good, bad] for number in range(3)})
    sit(run, "after", {number: [good, bad, bad] for number in range(3)})
    assert [story.title for story in told(run)] == ["Still wrong"]


def test_an_answer_that_a_program_printed_is_told_before_one_that_may_be_luck(run):
    sit(run, "before", {0: ([said("2")], WRONG), 1: ([said("2")], WRONG)})
    luck = [called("print(7)", "7"), said("1")]
    sit(run, "after", {0: (luck, RIGHT), 1: ([called("print(1)", "1"), said("1")], RIGHT)})
    [improved] = told(run)
    assert improved.domain == problem(1).domain
    assert "what a program of its own printed" in improved.remark


def test_an_answer_that_no_program_printed_is_said_to_be_luck_perhaps(run):
    sit(run, "before", {0: ([said("2")], WRONG)})
    sit(run, "after", {0: ([called("print(7)", "7"), said("1")], RIGHT)})
    [improved] = told(run)
    assert "may be luck" in improved.remark


def test_recovery_is_a_failed_call_then_a_changed_one_that_printed_the_right_answer(run):
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
    recovered, failed = told(run)
    assert recovered.title == "Recovered from an error"
    assert recovered.domain == problem(2).domain
    assert failed.domain == problem(1).domain
    assert [line.status for line in recovered.sides[0].lines] == ["", "model_error", "", "ok", ""]
    assert read(run).no_recovery == ""


def test_a_right_answer_by_luck_is_no_recovery_and_the_report_says_so(run):
    bad, other = called("print(x)", "NameError", ToolStatus.MODEL_ERROR), called("print(7)", "7")
    sit(run, "after", {0: ([bad, other, said("1")], RIGHT), 1: ([said("1")], RIGHT)})
    assert told(run) == ()
    assert "no example. Of 2 attempts, 1 had a call that failed; in none" in read(run).no_recovery


def test_without_a_failed_call_there_is_nothing_to_recover_from(run):
    sit(run, "after", {0: ([said("1")], RIGHT)})
    assert "Of 1 attempts, 0 had a call that failed." in read(run).no_recovery


def test_a_run_that_attempted_nothing_does_not_speak_of_recoveries(run):
    assert read(run).no_recovery == ""


def test_still_wrong_is_the_problem_that_is_solved_least(run):
    good, bad = ([said("1")], RIGHT), ([said("2")], WRONG)
    sit(run, "after", {0: [good, good, bad], 1: [good, bad, bad]})
    [failed] = told(run)
    assert failed.domain == problem(1).domain
    assert "33.3 % were right" in failed.remark


def test_attempts_not_measured_are_never_told(run):
    broken = Verdict.not_measured("the sandbox died")
    sit(run, "after", {0: ([said("?")], broken), 1: ([said("1")], RIGHT)})
    assert told(run) == ()


def test_a_run_without_exams_tells_of_its_latest_practice(run):
    journal = run.stage("rl")
    for step, answer in enumerate(("old", "new")):
        tried = attempt(f"{step}", problem(0), [said(answer)], WRONG)
        journal.keep(step, [Group(id=f"{step}", problem=problem(0), episodes=(tried,))])
        journal.commit(step)
    journal.commit(2)
    [failed] = told(run)
    assert failed.sides[0].lines[0].text == "new"


def test_long_text_loses_its_middle_and_says_how_much():
    cut = shown("a" * 5000 + "b" * 5000)
    assert cut.startswith("a" * 1500 + "\n… 7,000 characters")
    assert cut.endswith("b" * 1500)


def test_control_characters_become_visible_and_lines_stay_lines():
    assert shown("a\n\tb\0\x1b\x7f\u202e") == "a\n\tb␀␛␡\N{REPLACEMENT CHARACTER}"


def test_what_a_practice_attempt_earned_is_told_by_component(run):
    practice = run.stage("rl")
    tried = attempt("rl/0/0/a", problem(0), [said("2")], WRONG)
    practice.keep(0, [Group(id="rl/0/0", problem=problem(0), episodes=(tried,))])
    practice.keep_rewards(0, {tried.id: {"outcome": -1.0, "tool_bonus": 0.25}})
    practice.commit(0)
    (story,) = told(run)
    assert story.sides[0].earned == "-0.75: outcome -1, tool bonus 0.25"
    assert "Earned -0.75: outcome -1, tool bonus 0.25" in report_html(run)


def test_nothing_is_said_to_be_earned_in_an_exam(run):
    sit(run, "after", {0: ([said("2")], WRONG)})
    (story,) = told(run)
    assert story.sides[0].earned == ""
    assert "Earned" not in report_html(run)
