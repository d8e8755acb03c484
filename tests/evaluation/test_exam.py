import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forethought.agents.groups import Waves
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.core.messages import ToolStatus
from forethought.core.problem import Problem
from forethought.core.trajectory import Group, Stop
from forethought.core.verdict import Verdict
from forethought.evaluation.estimators import pass_at
from forethought.evaluation.exam import (
    Exam,
    plain_answer,
    summarise_exam,
    summarise_tools,
)
from forethought.evaluation.results import ExamResult
from forethought.evaluation.settings import ExamSettings
from scripted import PROBLEM, ScriptedSolver, attempt, episode, graded, only, turn

RIGHT, WRONG = Verdict.right(answer="42"), Verdict.wrong(answer="41")
OK, BAD = ToolStatus.OK, ToolStatus.MODEL_ERROR
MARKS = st.text("+-~?", min_size=4, max_size=4).filter(lambda marks: marks != "????")


def summarise(sampled, greedy=None, **kwargs):
    greedy = greedy or dict.fromkeys(sampled, "+")
    return summarise_exam(
        "held_out",
        [graded(name, marks) for name, marks in sampled.items()],
        [graded(name, mark) for name, mark in greedy.items()],
        {"temperature": 1.0},
        **kwargs,
    )


def one_group(*episodes):
    return [Group(id="g", problem=PROBLEM, episodes=episodes)]


def sit(verdict, greedy_verdict=None, *, problems=3, settings=None, progress=None, **conditions):
    exam = Exam(
        problems=tuple(Problem(id=f"p{n}", prompt="?", answer="42") for n in range(problems)),
        settings=settings or ExamSettings(attempts=2),
        conditions=conditions,
    )
    return asyncio.run(
        exam.sit(
            ScriptedSolver(verdict),
            ScriptedSolver(greedy_verdict or verdict),
            name="eval/3",
            seed=0,
            flow=Waves(4),
            progress=progress,
        )
    )


def test_the_figures_of_an_exam_are_means_over_its_problems():
    found = summarise({"p": "++--", "q": "+---", "r": "----"}, {"p": "+", "q": "-", "r": "-"})
    assert found.average.value == pytest.approx(0.25)
    assert found.coverage.value == pytest.approx(2 / 3)
    assert found.majority.value == pytest.approx((0.5 + 0 + 0) / 3)
    assert found.greedy.value == pytest.approx(1 / 3)
    assert (found.attempts, found.not_measured) == (4, 0)
    assert found.settings == {"temperature": 1.0}


def test_a_problem_keeps_its_counts_its_domain_and_its_greedy_attempt():
    found = summarise_exam(
        "e", [graded("p", "+-~?", "gcd"), graded("q", "++++")], [graded("q", "+")], {}
    )
    (problem, _) = found.problems
    assert (problem.id, problem.domain, problem.n, problem.c) == ("p", "gcd", 3, 1)
    assert problem.majority == 0.5
    assert problem.greedy is None


def test_attempts_not_measured_leave_numerator_and_denominator():
    found = summarise({"p": "+?--", "q": "++++", "r": "????"}, {"p": "+", "q": "?", "r": "-"})
    assert [(problem.id, problem.n, problem.c) for problem in found.problems] == [
        ("p", 3, 1),
        ("q", 4, 4),
    ]
    assert found.average.value == pytest.approx((1 / 3 + 1) / 2)
    assert found.not_measured == 6
    assert found.greedy.value == 1.0


def test_a_problem_short_of_k_attempts_says_nothing_of_k():
    found = summarise({"p": "---?", "q": "++++", "r": "----"})
    assert found.coverage.value == 0.5
    assert found.majority.value == 0.5
    assert found.average.value == pytest.approx(1 / 3)


@given(st.lists(MARKS, min_size=1, max_size=6))
def test_an_exam_adds_up_whatever_was_measured(rows):
    found = summarise({"whole": "+--~"} | {f"p{n}": marks for n, marks in enumerate(rows)})
    marks = "".join(["+--~", *rows])
    assert sum(problem.c for problem in found.problems) == marks.count("+")
    assert sum(problem.n for problem in found.problems) == len(marks) - marks.count("?")
    assert found.not_measured == marks.count("?")
    whole = [problem for problem in found.problems if problem.n == 4]
    expected = sum(pass_at(4, problem.n, problem.c) for problem in whole) / len(whole)
    assert found.coverage.value == pytest.approx(expected)


def test_an_exam_without_a_figure_says_how_an_attempt_broke():
    lost = attempt([KeyError("x")])
    group = Group(id="g", problem=PROBLEM, episodes=(lost,))
    with pytest.raises(UnmeasuredError, match="policy: KeyError: 'x'") as risen:
        summarise_exam("e", [group], [group], {})
    assert risen.value.trace == only(lost).error
    assert "Traceback" in risen.value.trace


@pytest.mark.parametrize(
    ("sampled", "greedy"),
    [({"p": "???"}, {"p": "+"}), ({"p": "+?"}, {"p": "+"}), ({"p": "+"}, {"p": "?"})],
)
def test_an_exam_without_a_figure_is_refused_with_the_reason(sampled, greedy):
    with pytest.raises(RecipeError, match=r"commonest reason .* is 'no sandbox'"):
        summarise(sampled, greedy)


def test_an_exam_without_problems_is_refused():
    with pytest.raises(RecipeError, match="of 0 problems"):
        summarise_exam("e", [], [], {})


def test_problems_with_other_numbers_of_attempts_are_a_mistake():
    with pytest.raises(ValueError, match="same number of attempts"):
        summarise({"p": "++", "q": "+"})


def test_equal_answers_are_made_equal_before_they_are_counted():
    spelled = [Verdict.wrong(answer="Five"), Verdict.wrong(answer=" five "), RIGHT]
    sampled = one_group(*(episode(verdict=verdict) for verdict in spelled))
    greedy = one_group(episode())
    assert summarise_exam("e", sampled, greedy, {}).majority.value == 0.0
    exact = summarise_exam("e", sampled, greedy, {}, canonical=str)
    assert exact.majority.value == pytest.approx(1 / 3)


def test_case_and_spacing_do_not_tell_answers_apart():
    assert plain_answer("  Monday\n 3 ") == plain_answer("monday 3")
    assert plain_answer("12") != plain_answer("1 2")


def test_tool_use_is_counted_by_attempt_and_by_call():
    found = summarise_tools(
        [
            episode(verdict=RIGHT, turns=[turn(OK, BAD), turn(OK), turn()]),
            episode(verdict=WRONG, turns=[turn(BAD), turn()]),
            episode(verdict=RIGHT, turns=[turn()]),
            episode(verdict=RIGHT, turns=[turn()]),
        ]
    )
    assert (found.rate, found.calls, found.success) == (0.5, 1.0, 0.5)
    assert (found.right_with_tool, found.right_without_tool) == (0.5, 1.0)


def test_tool_figures_without_anything_counted_are_absent():
    without = summarise_tools([episode(turns=[turn()])])
    assert (without.rate, without.success, without.right_with_tool) == (0.0, None, None)
    assert summarise_tools([episode(turns=[turn(OK), turn()])]).right_without_tool is None


def test_tool_use_leaves_out_attempts_that_were_not_measured():
    broken = episode(verdict=Verdict.not_measured("no sandbox"), turns=[turn(BAD)])
    full = Group(
        id="h",
        problem=Problem(id="q", prompt="?", answer="42"),
        episodes=(episode(), episode()),
    )
    sampled = [*one_group(episode(turns=[turn(OK)]), broken), full]
    found = summarise_exam("e", sampled, one_group(episode()), {})
    assert found.sampled_tools.calls == pytest.approx(1 / 3)
    assert found.sampled_tools.success == 1.0
    assert found.greedy_tools.rate == 0.0


def test_entropy_is_weighted_by_tokens_and_length_by_attempts():
    sampled = one_group(
        episode(turns=[turn(tokens=30, entropy=0.1), turn(tokens=10, entropy=0.5)]),
        episode(turns=[turn(tokens=0, entropy=9.0)]),
    )
    found = summarise_exam("e", sampled, one_group(episode()), {})
    assert found.entropy == pytest.approx(0.2)
    assert found.tokens == 20.0


def test_attempts_that_ran_into_a_limit_are_unfinished():
    stops = [Stop.ANSWERED, Stop.TURN_LIMIT, Stop.TOKEN_LIMIT, Stop.CONTEXT_FULL, Stop.REFUSED]
    sampled = one_group(*(episode(stop=stop) for stop in stops))
    assert summarise_exam("e", sampled, one_group(episode()), {}).unfinished == 0.6


def test_an_exam_result_survives_being_written_and_read():
    found = summarise({"p": "+-?-", "q": "++++"})
    assert ExamResult.model_validate_json(found.model_dump_json()) == found


def test_sitting_an_exam_samples_k_times_and_once_greedily():
    heard = []
    found, groups = sit(
        lambda problem, key: RIGHT if key.rollout == 0 else WRONG,
        lambda problem, key: WRONG,
        progress=heard.append,
        temperature=1.0,
    )
    assert (found.name, found.attempts, found.settings) == ("eval/3", 2, {"temperature": 1.0})
    assert (found.average.value, found.coverage.value, found.greedy.value) == (0.5, 1.0, 0.0)
    assert [len(group.episodes) for group in groups] == [2, 2, 2, 1, 1, 1]
    assert groups[0].id == "eval/3/sampled/0/p0"
    assert groups[-1].id == "eval/3/greedy/2/p2"
    assert len(heard) == 9


def test_an_exam_takes_the_first_of_its_problems():
    settings = ExamSettings(attempts=1, problems=2)
    found, _ = sit(lambda problem, key: RIGHT, problems=5, settings=settings)
    assert [problem.id for problem in found.problems] == ["p0", "p1"]


def test_sitting_an_exam_twice_gives_the_same_result():
    def verdict(problem, key):
        return RIGHT if key.turn_seed(0) % 2 else WRONG

    assert sit(verdict, problems=20) == sit(verdict, problems=20)


def broken_in(share):
    def verdict(problem, key):
        number = 2 * int(problem.id[1:]) + key.rollout
        return Verdict.not_measured("no sandbox") if number < share else RIGHT

    return verdict


def test_an_exam_of_which_too_much_broke_is_refused_with_share_and_reason():
    with pytest.raises(RecipeError, match=r"4 of 30 attempts \(13%\).*; 4 of them: no sandbox"):
        sit(broken_in(4), lambda problem, key: RIGHT, problems=10)


def test_an_exam_of_which_a_little_broke_is_a_result_that_says_so():
    found, _ = sit(broken_in(3), lambda problem, key: RIGHT, problems=10)
    assert found.not_measured == 3
    assert len(found.problems) == 9


def test_how_much_may_break_is_a_setting():
    settings = ExamSettings(attempts=2, max_not_measured=0.0)
    with pytest.raises(RecipeError, match=r"more than eval\.max_not_measured = 0\.0"):
        sit(broken_in(1), lambda problem, key: RIGHT, problems=10, settings=settings)


def test_an_exam_with_a_problem_twice_or_none_is_refused():
    with pytest.raises(RecipeError, match="holds problem p twice"):
        Exam(problems=(PROBLEM, PROBLEM))
    with pytest.raises(RecipeError, match="holds 0 problems"):
        Exam(problems=())


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"problems": 0}, {"max_not_measured": 1.5}, {"atempts": 8}]
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValidationError):
        ExamSettings(**wrong)
