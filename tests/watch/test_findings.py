"""What may be claimed follows from intervals, and from nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.evaluation.results import ToolUse
from forethought.watch.exams import SatExam
from forethought.watch.findings import Kind, findings, sources
from watch.synthetic_run import exam


def sat(result, key=None):
    return SatExam(key=key or result.name, stage="eval", result=result)


def said(found, kind):
    return " ".join(one.text for one in found if one.kind is kind)


def test_a_gain_is_claimed_where_the_paired_interval_excludes_zero():
    found = findings([sat(exam("before", right=1)), sat(exam("after", right=3))])
    assert "avg@4 rose by +50.0 points" in said(found, Kind.LEARNT)
    assert said(found, Kind.LOST) == ""


def test_no_gain_is_claimed_from_equal_exams():
    found = findings([sat(exam("before")), sat(exam("after"))])
    assert said(found, Kind.LEARNT) == ""
    assert "avg@4 did not change measurably" in said(found, Kind.NOT_SHOWN)
    assert "Greedy accuracy did not change measurably" in said(found, Kind.NOT_SHOWN)


def test_a_fall_is_said_to_be_a_fall():
    found = findings([sat(exam("before", right=3)), sat(exam("after", right=1))])
    assert "avg@4 fell" in said(found, Kind.LOST)
    assert said(found, Kind.LEARNT) == ""


def test_a_control_that_is_not_exceeded_is_said_so_beside_the_gain():
    control, before, after = exam("tool_only", right=3), exam("before", right=1), exam(right=3)
    found = findings([sat(control), sat(before), sat(after, "after")])
    assert "avg@4 rose" in said(found, Kind.LEARNT)
    assert "tool-only control is not exceeded" in said(found, Kind.NOT_SHOWN)


@pytest.mark.parametrize(
    ("right", "kind", "text"),
    [(1, Kind.LEARNT, "exceeds the tool-only"), (4, Kind.LOST, "falls short of the tool-only")],
)
def test_a_control_is_beaten_or_beats(right, kind, text):
    exams = [exam("tool_only", right=right), exam("before", right=1), exam("after", right=3)]
    assert text in said(findings([sat(one) for one in exams]), kind)


def test_a_gain_from_calling_more_often_is_not_called_better_use_of_the_tool():
    before = exam("before", right=1, rate=0.2, with_tool=0.8, without=0.1)
    after = exam("after", right=3, rate=0.9, with_tool=0.82, without=0.1)
    found = findings([sat(before), sat(after)])
    assert "from reaching for the tool more often (20.0 % → 90.0 %)" in said(found, Kind.CAUTION)
    assert "Accuracy given the tool did not move" in said(found, Kind.NOT_SHOWN)


def test_a_gain_from_better_use_of_the_tool_is_called_that():
    before = exam("before", right=1, rate=0.8, with_tool=0.3, without=0.1)
    after = exam("after", right=3, rate=0.9, with_tool=0.9, without=0.1)
    found = findings([sat(before), sat(after)])
    assert "+51.0 from being right more often with it" in said(found, Kind.LEARNT)
    assert "did not move" not in said(found, Kind.NOT_SHOWN)


def test_side_effects_and_missing_measurements_are_cautions():
    after = exam("after", problems=12, entropy=0.1, unfinished=0.3, not_measured=3)
    caution = said(findings([sat(exam("before", problems=12)), sat(after)]), Kind.CAUTION)
    assert "Entropy fell from 0.400 to 0.100" in caution
    assert "2.0 % → 30.0 %" in caution
    assert "3 attempts of the last exam were not measured" in caution
    assert "only 12 problems" in caution


def test_without_exams_nothing_is_known():
    [only] = findings([])
    assert only.kind is Kind.NOT_SHOWN


SHARE = st.floats(0, 1)


@given(SHARE, SHARE, SHARE, SHARE, SHARE, SHARE)
def test_the_sources_of_a_change_add_up_to_it(r0, w0, o0, r1, w1, o1):
    before = exam(rate=r0, with_tool=w0, without=o0)
    after = exam(rate=r1, with_tool=w1, without=o1)
    parts = sources(before, after)
    change = (r1 * w1 + (1 - r1) * o1) - (r0 * w0 + (1 - r0) * o0)
    assert parts.reaching + parts.with_tool + parts.without_tool == pytest.approx(change, abs=1e-9)


def test_an_exam_without_calls_says_nothing_of_accuracy_with_them():
    def tools(rate, with_tool, without):
        return ToolUse(
            rate=rate,
            calls=rate,
            success=None,
            right_with_tool=with_tool,
            right_without_tool=without,
        )

    before = exam("before", right=1, sampled_tools=tools(0.0, None, 0.25))
    after = exam("after", right=3, sampled_tools=tools(1.0, 0.75, None))
    parts = sources(before, after)
    assert parts.reaching == pytest.approx(0.5)
    assert parts.with_tool == parts.without_tool == 0.0
    assert "— → 75.0 %" in said(findings([sat(before), sat(after)]), Kind.NOT_SHOWN)
