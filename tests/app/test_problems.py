"""The training side is divided by what problems ask, not by how they are called."""

import json

import pytest

from forethought.app.problems import (
    CodeProblems,
    Division,
    FileProblems,
    PracticeProblems,
    held_out,
    training_side,
)
from forethought.core.errors import RecipeError

ONE = Division(pilot=0, measure=0, collect=1)
FEW = PracticeProblems(type="practice", families=("weekdays",), hard=0.0, hard_later=0.0)
DIVISION = Division(pilot=60, measure=200, collect=300)


def asked(problems):
    return {(problem.domain, problem.data["program"]) for problem in problems}


@pytest.fixture
def boxes(tmp_path):
    """Problem settings over a file in which every question stands twice, under two ids."""
    rows = [{"prompt": f"{n} + 1?", "answer": n + 1} for n in range(10) for _ in range(2)]
    path = tmp_path / "boxes.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return FileProblems(type="file", train=str(path), held_out=str(path))


@pytest.mark.parametrize("seed", range(3))
def test_no_two_purposes_share_the_parameters_of_a_practice_problem(seed):
    side = training_side(FEW, DIVISION, seed)
    assert [len(part) for part in (side.pilot, side.measure, side.collect)] == [60, 200, 300]
    assert not asked(side.pilot) & asked(side.measure)
    assert not (asked(side.pilot) | asked(side.measure)) & asked(side.collect)


def test_other_wordings_of_one_question_stay_together_in_one_purpose():
    side = training_side(FEW, DIVISION, 0)
    assert len(asked(side.collect)) < len({problem.id for problem in side.collect}) == 300


def test_no_exam_problem_has_the_parameters_of_a_training_problem():
    side = training_side(FEW, DIVISION, 0)
    trained = asked([*side.pilot, *side.measure, *side.collect])
    assert not trained & asked(held_out(FEW, 100))


def test_the_same_seed_gives_the_same_division_and_another_seed_another():
    assert training_side(FEW, DIVISION, 4) == training_side(FEW, DIVISION, 4)
    assert training_side(FEW, DIVISION, 4) != training_side(FEW, DIVISION, 5)


def test_a_file_is_taken_from_its_front_and_a_question_serves_one_purpose(boxes):
    side = training_side(boxes, Division(pilot=3, measure=4, collect=6), 0)
    assert [problem.prompt for problem in side.pilot] == ["0 + 1?", "0 + 1?", "1 + 1?"]
    assert [problem.prompt for problem in side.measure] == ["2 + 1?"] * 2 + ["3 + 1?"] * 2
    assert [problem.prompt for problem in side.collect] == [f"{n} + 1?" for n in (4, 4, 5, 5, 6, 6)]


def test_a_purpose_that_takes_nothing_is_empty(boxes):
    side = training_side(boxes, Division(pilot=0, measure=0, collect=20), 0)
    assert (side.pilot, side.measure, len(side.collect)) == ((), (), 20)


def test_too_few_different_questions_are_refused_with_their_number(boxes):
    with pytest.raises(RecipeError, match=r"19 on the training side.* take 3 \+ 4 \+ 13"):
        training_side(boxes, Division(pilot=3, measure=4, collect=13), 0)


def adding(*tests):
    """A row whose answer is a program that adds."""
    tests = tests or ("assert add(1, 2) == 3", "assert add(2, 2) == 4")
    return {"text": "add.", "code": "def add(a, b): return a + b", "test_list": tests}


def programs(path, *rows, **settings):
    """Problem settings over a file of such rows, on both sides."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return CodeProblems(type="code", train=str(path), held_out=str(path), **settings)


def test_programs_are_asked_for_from_the_file_of_their_side(tmp_path):
    one = programs(tmp_path / "one.jsonl", adding())
    two = programs(tmp_path / "two.jsonl", adding())
    both = CodeProblems(type="code", train=one.train, held_out=two.held_out)
    assert training_side(both, ONE, 0).collect[0].id == "one-1"
    assert held_out(both, 5)[0].id == "two-1"


def test_shown_tests_decides_how_many_a_question_shows(tmp_path):
    shown = {
        count: held_out(programs(tmp_path / "a.jsonl", adding(), shown_tests=count), 1)[0].prompt
        for count in (0, 1, 2)
    }
    assert [prompt.count("assert add") for prompt in shown.values()] == [0, 1, 2]


def test_uncheckable_decides_whether_rows_are_left_out(tmp_path, caplog):
    rows = adding(), adding("assert add(1, 2) == add(2, 1)"), adding("assert add(0, 1) == 1")
    refused = programs(tmp_path / "a.jsonl", *rows)
    with pytest.raises(RecipeError, match=r"1 of 3 rows cannot be checked .*row 2.*leave_out"):
        held_out(refused, 5)
    left_out = programs(tmp_path / "a.jsonl", *rows, uncheckable="leave_out")
    assert [problem.id for problem in held_out(left_out, 5)] == ["a-1", "a-3"]
    held_out(left_out, 5)
    told = [each for each in caplog.messages if "1 of 3 rows are left out" in each]
    assert len(told) == 1


def test_a_file_without_a_row_that_can_be_checked_holds_no_problem(tmp_path):
    settings = programs(tmp_path / "a.jsonl", adding("assert x"), uncheckable="leave_out")
    with pytest.raises(RecipeError, match="holds no problem"):
        held_out(settings, 5)
