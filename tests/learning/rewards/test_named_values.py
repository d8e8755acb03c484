r"""Answers with named parts, checked one by one."""

from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.learning.rewards.named_values import (
    coverage,
    given_value,
    named_parts,
    steps,
    verification,
)
from forethought.tasks.files import file_problems
from learning.rewards.attempts import episode, reward, team, turn

PARTED = Problem(
    id="p",
    prompt="Mean, median and mode?",
    answer="see parts",
    data={"parts": {"mean": "2,125", "median": 3.5, "mode": "7"}},
)


def said(text):
    return episode(turn("print(1)", reply="mode: 7"), turn(text=text), problem=PARTED)


@mark.parametrize(
    ("text", "value"),
    [
        ("x = 3, y = 5", "3"),
        ("x: 3; y: 5", "3"),
        ("- **x**: 3\n- **y**: 5", "3"),
        ("x = 1\nno: x = 3", "3"),
        (r"$x$ = \boxed{\frac{3}{1}}.", r"\frac{3}{1}"),
        ("X = 3.", "3"),
        ("x = 2,125", "2,125"),
        ("max = 3", None),
        ("x is 3", None),
        ("x =", None),
        ("x =\ny = 5", None),
        ("", None),
    ],
)
def test_the_value_of_a_part_is_read_behind_its_name(text, value):
    assert given_value(text, "x") == value


@mark.parametrize("text", ["x" + " " * 200_000, "x =" + " " * 200_000, "x " * 100_000])
def test_a_text_that_leads_nowhere_is_read_in_time(text):
    assert given_value(text, "x") is None


def test_coverage_counts_parts_that_are_given_and_verification_those_that_are_right():
    attempt = said("mean = 2125, median = 4")
    assert coverage(attempt) == approx(2 / 3)
    assert verification(attempt) == approx(1 / 3)
    assert verification(said("mode = 7\nmedian = 7/2\nmean = 2125.0")) == 1.0


def test_what_a_tool_replied_or_a_call_says_covers_nothing():
    assert coverage(said("done")) == 0.0
    calling = episode(turn("print(1)", text="mean = 2125"), problem=PARTED)
    assert coverage(calling) == 0.0


def test_only_the_last_agent_of_a_team_answers():
    both = team([turn(text="mean = 2125")], [turn(text="mode = 7")])
    parted = type(both)(
        id="p/0", problem=PARTED, trajectories=both.trajectories, verdict=both.verdict
    )
    assert verification(parted) == approx(1 / 3)


def on_the_way(*texts):
    """An attempt that says these, with a call in each message but the last."""
    before = [turn("print(1)", reply="mode: 7", text=text) for text in texts[:-1]]
    return episode(*before, turn(text=texts[-1]), problem=PARTED)


@mark.parametrize(
    ("texts", "found"),
    [
        (("mean = 2125", "median: 3.5; mode: 7"), (1 / 3, 2 / 3)),
        (("mean = 2125", "mean = 2125, so mode = 7"), (1 / 3, 1 / 3)),
        (("mean = 1", "mean = 2125"), (0.0, 0.0)),
        (("mean = 1, then mean = 2125", "done"), (1 / 3, 0.0)),
        (("let me see", "it is 2125"), (0.0, 0.0)),
    ],
)
def test_a_step_counts_where_it_is_said_first_and_right(texts, found):
    assert steps(on_the_way(*texts)) == approx(found)


def test_what_tools_say_is_no_step():
    assert steps(said("done")) == (0.0, 0.0)


def test_without_parts_there_are_no_steps():
    assert steps(episode(turn(text="mean = 2125"))) == (0.0,)


def test_steps_are_paid_by_turn():
    found = reward(on_the_way("mean = 2125", "mode = 7"), process={"most": 9.0, "steps": 0.3})
    assert found.components["steps"] == approx(0.2)
    assert found.turn_parts["steps"] == approx((0.1, 0.1))


def test_parts_are_paid_by_their_weights():
    settings = {"process": {"most": 9.0, "coverage": 0.3, "verification": 0.6}}
    found = reward(said("mean = 2125, median = 4"), **settings).components
    assert (found["coverage"], found["verification"]) == approx((0.2, 0.2))


def test_a_problem_without_parts_pays_nothing_for_them():
    settings = {"process": {"coverage": 0.3, "verification": 0.6}}
    found = reward(episode(turn(text="mean = 2125")), **settings).components
    assert (found["coverage"], found["verification"]) == (0.0, 0.0)


def test_a_row_of_a_file_brings_its_parts(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "x and y?", "answer": "both", "parts": {"x": 3, "y": "4"}}\n')
    (problem,) = file_problems(path)
    assert named_parts(problem) == {"x": "3", "y": "4"}


@mark.parametrize("parts", [["a"], "a", {"a": [1]}, {"a": True}])
def test_parts_that_are_no_names_and_values_are_refused(parts):
    with raises(RecipeError, match=r"problem p: 'parts' must be .*; mend the row"):
        named_parts(Problem(id="p", prompt="?", answer="4", data={"parts": parts}))
