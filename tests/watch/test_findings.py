"""What may be claimed follows from intervals, and from nothing else."""

import pytest

from forethought.evaluation.results import Estimate
from forethought.watch.exams import SatExam
from forethought.watch.findings import Kind, findings
from forethought.watch.sources import Sources
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


def part(value, reach=0.02):
    return Estimate(value=value, low=value - reach, high=value + reach)


def split(reaching, with_tool, without_tool):
    return Sources(reaching=reaching, with_tool=with_tool, without_tool=without_tool)


RISE = [sat(exam("before", right=1, rate=0.2)), sat(exam("after", right=3, rate=0.9))]


def test_a_gain_from_calling_more_often_is_not_called_better_use_of_the_tool():
    found = findings(RISE, split(part(0.49), part(0.01), part(0.0)))
    caution = said(found, Kind.CAUTION)
    assert "Of the +50.0 points of sampled accuracy, +49.0 [+47.0, +51.0]" in caution
    assert "from reaching for the tool more often (20.0 % → 90.0 %)" in caution
    assert "Accuracy given the tool did not move" in said(found, Kind.NOT_SHOWN)


def test_a_gain_from_better_use_of_the_tool_is_called_that():
    found = findings(RISE, split(part(0.05), part(0.45), part(0.0)))
    assert "+45.0 [+43.0, +47.0] from being right more often with it" in said(found, Kind.LEARNT)
    assert "did not move" not in said(found, Kind.NOT_SHOWN)


def test_parts_whose_intervals_hold_zero_are_a_caution_and_not_learnt():
    found = findings(RISE, split(part(0.1, 0.6), part(0.3, 0.31), part(0.1, 0.4)))
    assert "from being right more often with it" in said(found, Kind.CAUTION)
    assert "from being right more often" not in said(found, Kind.LEARNT)


def test_being_right_more_often_without_the_tool_is_learnt_where_its_interval_says_so():
    found = findings(RISE, split(part(0.0), part(0.0), part(0.5)))
    assert "+50.0 [+48.0, +52.0] from being right more often without it" in said(found, Kind.LEARNT)


def test_a_gain_from_reaching_is_a_caution_although_using_it_better_is_shown_too():
    found = findings(RISE, split(part(0.3), part(0.2), part(0.0)))
    assert "+20.0 [+18.0, +22.0] from being right" in said(found, Kind.CAUTION)
    assert "did not move" not in said(found, Kind.NOT_SHOWN)


def test_a_change_that_is_no_gain_is_not_split():
    same = [sat(exam("before")), sat(exam("after"))]
    for parts, exams in ((split(part(0.3), part(0.2), part(0.0)), same), (None, RISE)):
        assert not any("reaching for the tool" in one.text for one in findings(exams, parts))


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
