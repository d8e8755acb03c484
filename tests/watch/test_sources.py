"""A change of accuracy is split into parts that add up, each with an interval over problems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.core.trajectory import Group
from forethought.core.verdict import Verdict
from forethought.watch.sources import sources
from watch.synthetic_run import attempt, called, groups, problem, said

BROKEN = Verdict.not_measured("the sandbox died")


def group(number, outcomes):
    """A group of attempts at problem `number`, each as (calls the tool, verdict or right)."""
    asked = problem(number)
    episodes = tuple(
        attempt(
            f"{number}/{place}",
            asked,
            [called("print(1)", "1"), said("1")] if calls else [said("1")],
            verdict if isinstance(verdict, Verdict) else _verdict(verdict),
        )
        for place, (calls, verdict) in enumerate(outcomes)
    )
    return Group(id=f"e/sampled/{number}", problem=asked, episodes=episodes)


def _verdict(right):
    return Verdict.right("1") if right else Verdict.wrong("2")


def sat(*outcomes):
    return [group(number, each) for number, each in enumerate(outcomes)]


def accuracy(sat_groups):
    attempts = [one.right for each in sat_groups for one in each.measured]
    return sum(attempts) / len(attempts)


ATTEMPTS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3)
EXAMS = st.lists(ATTEMPTS, min_size=4, max_size=4)


@given(EXAMS, EXAMS)
def test_the_parts_add_up_to_the_change(first, second):
    before, after = sat(*first), sat(*second)
    split = sources(before, after)
    assert split.total == pytest.approx(accuracy(after) - accuracy(before), abs=1e-9)


def test_the_parts_are_those_of_a_worked_example():
    # Rate 1/4 to 3/4; right with the tool 1/2 to 5/6; right without it 1/6 to 1/2.
    yes, no = (True, True), (True, False)
    right, wrong = (False, True), (False, False)
    before = sat([yes, wrong, wrong, right], [no, wrong, wrong, wrong])
    after = sat([yes, yes, yes, right], [yes, yes, no, wrong])
    split = sources(before, after)
    assert split.reaching.value == pytest.approx(1 / 2 * (2 / 3 - 1 / 3))
    assert split.with_tool.value == pytest.approx(1 / 3 * 1 / 2)
    assert split.without_tool.value == pytest.approx(1 / 3 * 1 / 2)


def test_the_interval_of_a_part_grows_with_the_spread_of_problems():
    # Both halve their errors with the tool: on every problem alike, or on every other one.
    even = sources(sat(*[[(True, False)] * 2] * 20), sat(*[[(True, True), (True, False)]] * 20))
    mixed = sources(
        sat(*[[(True, False)] * 2] * 20),
        sat(*([[(True, True)] * 2, [(True, False)] * 2] * 10)),
    )
    assert even.with_tool.value == pytest.approx(mixed.with_tool.value) == pytest.approx(0.5)
    assert mixed.with_tool.high - mixed.with_tool.low > 0.3
    # The standard error of a half over twenty problems is 0.112.
    assert mixed.with_tool.low == pytest.approx(0.5 - 1.96 * 0.112, abs=0.04)
    assert mixed.with_tool.high == pytest.approx(0.5 + 1.96 * 0.112, abs=0.04)


def test_two_samples_of_one_ability_rarely_show_a_part():
    ability = {"problems": range(40), "size": 4, "tool": 0.6}
    splits = [
        sources(groups("b", seed=seed, **ability), groups("a", seed=100 + seed, **ability))
        for seed in range(20)
    ]
    shown = [one.with_tool.low > 0 or one.with_tool.high < 0 for one in splits]
    assert sum(shown) <= 4  # one in twenty is expected, five or more in 400 such tests once


def test_an_exam_without_calls_says_nothing_of_accuracy_with_them():
    before = sat(*[[(False, False)] * 3 + [(False, True)]] * 4)
    after = sat(*[[(True, True)] * 3 + [(True, False)]] * 4)
    split = sources(before, after)
    assert split.reaching.value == pytest.approx(0.5)
    for part in (split.with_tool, split.without_tool):
        assert (part.low, part.value, part.high) == (0.0, 0.0, 0.0)


def test_only_measured_attempts_at_common_problems_count():
    before = sat([(True, True), (False, BROKEN)], [(True, False)], [(True, BROKEN)])
    after = sat([(True, True)], [(True, True)], [(True, False)], [(True, True)])
    assert sources(before, after).with_tool.value == pytest.approx(0.5)


@pytest.mark.parametrize("problems", [0, 1])
def test_fewer_than_two_common_problems_are_not_split(problems):
    before = sat(*[[(True, False)]] * problems)
    assert sources(before, sat([(True, True)], [(True, True)])) is None
