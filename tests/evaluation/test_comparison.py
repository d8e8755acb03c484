import json
from math import sqrt
from pathlib import Path
from statistics import stdev

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.evaluation.comparison import paired_difference, solved
from forethought.evaluation.exam import summarise_exam
from scripted import graded

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "14_passk_majk_stats.json").read_text())
CONDITIONS = {"temperature": 1.0, "top_p": 1.0}


def exam(name, sampled, greedy=None, conditions=CONDITIONS):
    """An exam from marks by problem; the greedy attempts are all right unless given."""
    return summarise_exam(
        name,
        [graded(problem, marks) for problem, marks in sampled.items()],
        [
            graded(problem, mark)
            for problem, mark in (greedy or dict.fromkeys(sampled, "+")).items()
        ],
        conditions,
    )


def marks(rate):
    right = round(4 * rate)
    return "+" * right + "-" * (4 - right)


def by_golden(scores):
    return {f"p{n}": marks(score) for n, score in enumerate(scores)}


def test_the_paired_difference_is_the_golden_one():
    bars, expected = GOLDEN["error_bars"], GOLDEN["error_bars"]["paired"]
    before, after = exam("b", by_golden(bars["scores_b"])), exam("a", by_golden(bars["scores"]))
    found = paired_difference(before, after, "average")
    assert found.value == pytest.approx(expected["mean_diff"], abs=1e-12)
    reach = 1.959963984540054 * expected["se_paired"]
    assert (found.low, found.high) == pytest.approx((0.125 - reach, 0.125 + reach), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_exchanging_the_exams_turns_the_difference_round(pairs):
    one = exam("one", {f"p{n}": marks(pair[0] / 4) for n, pair in enumerate(pairs)})
    two = exam("two", {f"p{n}": marks(pair[1] / 4) for n, pair in enumerate(pairs)})
    there, back = paired_difference(one, two, "average"), paired_difference(two, one, "average")
    assert (there.value, there.low, there.high) == pytest.approx(
        (-back.value, -back.high, -back.low)
    )
    differences = [(after - before) / 4 for before, after in pairs]
    assume(max(differences) > min(differences))
    assert there.value - there.low == pytest.approx(
        min(1.959963984540054 * stdev(differences) / sqrt(len(pairs)), 1 + there.value)
    )


def test_greedy_and_coverage_compare_other_scores():
    before = exam("before", {"p": "+---", "q": "+---"}, {"p": "-", "q": "-"})
    after = exam("after", {"p": "++++", "q": "----"}, {"p": "+", "q": "+"})
    assert paired_difference(before, after, "average").value == 0.25
    assert paired_difference(before, after, "coverage").value == -0.5
    assert paired_difference(before, after, "greedy").value == 1.0


def test_only_problems_that_both_measured_are_compared():
    before = exam("before", {"p": "++--", "q": "++++", "r": "----"})
    after = exam("after", {"r": "----", "q": "????", "p": "++++"})
    assert paired_difference(before, after, "average").value == 0.25


def test_a_problem_short_of_k_attempts_leaves_the_comparison_of_coverage():
    before = exam("before", {"p": "+---", "q": "+---", "r": "+---"})
    after = exam("after", {"p": "----", "q": "---?", "r": "+---"})
    assert paired_difference(before, after, "coverage").value == -0.5


def test_a_greedy_attempt_not_measured_leaves_the_comparison_of_greedy():
    before = exam("before", {"p": "+", "q": "+", "r": "+"}, {"p": "-", "q": "-", "r": "+"})
    after = exam("after", {"p": "+", "q": "+", "r": "+"}, {"p": "+", "q": "?", "r": "+"})
    assert paired_difference(before, after, "greedy").value == 0.5


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [("++--", "++--", 0.0), ("+---", "+++-", 0.5), ("----", "++++", 1.0)],
)
def test_differences_that_are_all_equal_leave_room_for_problems_that_were_not_asked(
    before, after, value
):
    problems = [f"p{n}" for n in range(16)]
    found = paired_difference(
        exam("b", dict.fromkeys(problems, before)),
        exam("a", dict.fromkeys(problems, after)),
        "average",
    )
    unseen = 1.959963984540054**2 / (16 + 1.959963984540054**2)
    assert found.value == value
    assert found.low == pytest.approx(value - unseen * (1 + value))
    assert found.high == pytest.approx(value + unseen * (1 - value))


def test_differences_that_are_equal_but_for_rounding_have_no_spread():
    before = exam("b", {"p": "+" * 1 + "-" * 9, "q": "+" * 2 + "-" * 8})
    after = exam("a", {"p": "+" * 2 + "-" * 8, "q": "+" * 3 + "-" * 7})
    found = paired_difference(before, after, "average")
    assert found.high - found.low > 0.5


def test_more_equal_differences_leave_less_room():
    marks_of = [dict.fromkeys((f"p{n}" for n in range(count)), "++--") for count in (10, 100)]
    few, many = (
        paired_difference(exam("b", each), exam("a", each), "average") for each in marks_of
    )
    assert 0 < many.high < few.high < 0.3
    assert many.low == -many.high


def test_one_common_problem_says_nothing_about_others():
    found = paired_difference(exam("b", {"p": "----"}), exam("a", {"p": "++--"}), "average")
    assert (found.value, found.low, found.high) == (0.5, -1.0, 1.0)


def test_exams_without_a_common_problem_are_refused():
    with pytest.raises(RecipeError, match="b and a have no measured problem in common"):
        paired_difference(exam("b", {"p": "+"}), exam("a", {"q": "+"}), "average")


@pytest.mark.parametrize("compare", [lambda b, a: paired_difference(b, a, "average"), solved])
def test_exams_with_other_settings_are_refused_with_the_setting_named(compare):
    before, other_k = exam("b", {"p": "++"}), exam("a", {"p": "+"})
    with pytest.raises(RecipeError, match="attempts is 2 in one and 1 in the other"):
        compare(before, other_k)
    cooler = exam("a", {"p": "++"}, conditions={"temperature": 0.6, "top_p": 1.0})
    with pytest.raises(RecipeError, match=r"temperature is 1\.0 in one and 0\.6"):
        compare(before, cooler)
    silent = exam("a", {"p": "++"}, conditions={"temperature": 1.0})
    with pytest.raises(RecipeError, match=r"top_p is 1\.0 in one and None"):
        compare(before, silent)


def test_what_was_solved_by_whom_is_the_golden_table():
    table = GOLDEN["coverage_aime24"]
    ids = range(table["n_problems"])
    before = exam("base", {str(n): "+-" if n in table["base"] else "--" for n in ids})
    after = exam("rl", {str(n): "+-" if n in table["rl"] else "--" for n in ids})
    found, expected = solved(before, after), table["expected"]
    assert [int(name) for name in found.lost] == expected["base_only"]
    assert [int(name) for name in found.gained] == expected["rl_only"]
    counts = [len(found.both), len(found.lost), len(found.gained), len(found.neither)]
    assert [count / len(ids) for count in counts] == pytest.approx(expected["frac"])


def test_what_was_gained_is_told_from_what_was_lost():
    table = GOLDEN["coverage_lcb_400_450"]
    before = exam("base", {str(n): "+" if n in table["base"] else "-" for n in range(400, 450)})
    after = exam("rl", {str(n): "+" if n in table["rl"] else "-" for n in range(400, 450)})
    found = solved(before, after)
    assert [int(name) for name in found.lost] == table["base_only"]
    assert [int(name) for name in found.gained] == table["rl_only"]
