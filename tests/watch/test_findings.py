"""What may be claimed follows from intervals, and from nothing else."""

import pytest

from forethought.evaluation.results import Estimate
from forethought.watch.exams import SatExam, differences, families, points
from forethought.watch.finding import Kind
from forethought.watch.findings import findings
from forethought.watch.phases import Phase
from forethought.watch.sources import Sources
from watch.synthetic_run import exam

CONTROL = "the checkpoint trained with tool demonstrations only"


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
    not_shown = said(found, Kind.NOT_SHOWN)
    assert f"avg@4 is not shown to differ from that of {CONTROL}" in not_shown
    assert "does not show that practice adds more than reaching for the tool" in not_shown


@pytest.mark.parametrize(
    ("right", "kind", "text"),
    [(1, Kind.LEARNT, "avg@4 exceeds that of"), (4, Kind.LOST, "avg@4 falls short of that of")],
)
def test_a_control_is_beaten_or_beats(right, kind, text):
    exams = [exam("tool_only", right=right), exam("before", right=1), exam("after", right=3)]
    assert f"{text} {CONTROL}" in said(findings([sat(one) for one in exams]), kind)


@pytest.mark.parametrize(
    ("before", "after", "told"), [((0, 0, 4), (1, 4, 0), "2; only before: 1"), ((4,), (4,), "0; o")]
)
def test_problems_gained_and_lost_are_counted_where_coverage_did_not_change(before, after, told):
    first, second = exam("before", problems=len(before)), exam("after", problems=len(after))
    exams = [
        sat(
            result.model_copy(
                update={
                    "problems": tuple(
                        problem.model_copy(update={"c": right})
                        for problem, right in zip(result.problems, rights, strict=True)
                    )
                }
            )
        )
        for result, rights in ((first, before), (second, after))
    ]
    assert f"Problems solved only after: {told}" in said(findings(exams), Kind.NOT_SHOWN)


KINDS = {1: Kind.LEARNT, 0: Kind.NOT_SHOWN, -1: Kind.LOST}


@pytest.mark.parametrize("control", [1, 2, 3])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_every_paired_comparison_of_the_table_is_told_as_what_it_is(before, control):
    exams = [
        sat(exam(name, right=right))
        for name, right in (("tool_only", control), ("before", before), ("after", 2))
    ]
    found = findings(exams)
    compared = differences(exams)
    assert len(compared) == 6
    for each in compared:
        name = "Greedy accuracy" if each.what == "greedy" else each.measure
        against = CONTROL if each.earlier.key == "tool_only" else "the exam “before”"
        [kind] = [
            one.kind
            for one in found
            if one.text.startswith(name)
            and against in one.text
            and points(each.estimate) in one.text
        ]
        assert kind is KINDS[each.sign]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (0.4, 0.95, "40.0 % → 95.0 % of sampled attempts call the tool. It all but always calls"),
        (0.4, 0.05, "It all but never calls"),
        (0.97, 0.99, "it all but always calls, as before"),
        (0.0, 0.02, "it all but never calls, as before"),
        (0.4, 0.94, "Whether it learnt when to call is not known"),
    ],
)
def test_calling_always_or_never_is_not_knowing_when(first, second, told):
    found = findings([sat(exam("before", rate=first)), sat(exam("after", rate=second))])
    [when] = [one for one in found if "when to call" in one.text.lower()]
    assert when.kind is Kind.NOT_SHOWN
    assert told in when.text


def test_one_exam_says_nothing_of_having_learnt_when():
    assert not any("when to call" in one.text.lower() for one in findings([sat(exam(rate=0.99))]))


@pytest.mark.parametrize(("tool_free", "said_so"), [(0.5, True), (0.0, False)])
def test_a_start_that_was_held_back_is_a_caution(tool_free, said_so):
    phases = [Phase(name="mixed", steps=9, tool_free=tool_free, stop_at=None)]
    found = findings([sat(exam("before")), sat(exam("after"))], phases=phases)
    assert ("on purpose" in said(found, Kind.CAUTION)) is said_so


@pytest.mark.parametrize(("right", "unclear"), [(2, True), (4, False)])
def test_parts_whose_change_may_be_none_are_named(right, unclear):
    exams = [sat(exam("before")), sat(exam("after", right=right))]
    found = findings(exams, parts={"family": families(exams), "wording": []})
    told = "By family, 1 of 1 changes of sampled accuracy has an interval that holds zero: gcd."
    assert (told in said(found, Kind.NOT_SHOWN)) is unclear
    assert "By wording" not in said(found, Kind.NOT_SHOWN)


def test_a_part_that_fell_is_named_although_the_whole_rose():
    def result(name, gcd, dates):
        return exam(name).model_copy(
            update={
                "problems": tuple(
                    problem.model_copy(update={"domain": domain, "id": f"{place}", "c": right})
                    for domain, right in (("gcd", gcd), ("dates", dates))
                    for place, problem in enumerate(exam(name).problems, 100 * (domain == "gcd"))
                )
            }
        )

    exams = [sat(result("before", gcd=3, dates=0)), sat(result("after", gcd=2, dates=4))]
    found = findings(exams, parts={"family": families(exams), "wording": []})
    assert "avg@4 rose" in said(found, Kind.LEARNT)
    told = "By family, 1 of 2 changes of sampled accuracy has an interval below zero: gcd ("
    assert f"{told}\N{MINUS SIGN}25.0 points" in said(found, Kind.LOST)


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
    assert "+45.0 [+43.0, +47.0] from accuracy with it" in said(found, Kind.LEARNT)
    assert "did not move" not in said(found, Kind.NOT_SHOWN)


def test_parts_whose_intervals_hold_zero_are_a_caution_and_not_learnt():
    found = findings(RISE, split(part(0.1, 0.6), part(0.3, 0.31), part(0.1, 0.4)))
    assert "from accuracy with it" in said(found, Kind.CAUTION)
    assert "from accuracy" not in said(found, Kind.LEARNT)
    assert (
        "That any of the gain comes from reaching for the tool more often or from accuracy with "
        "the tool or from accuracy without it is not shown: their intervals hold zero."
    ) in said(found, Kind.NOT_SHOWN)


def test_parts_whose_intervals_exclude_zero_are_not_among_what_was_not_shown():
    found = findings(RISE, split(part(0.1), part(0.3), part(0.1)))
    assert "of the gain" not in said(found, Kind.NOT_SHOWN)


def test_being_right_more_often_without_the_tool_is_learnt_where_its_interval_says_so():
    found = findings(RISE, split(part(0.0), part(0.0), part(0.5)))
    assert "+50.0 [+48.0, +52.0] from accuracy without it" in said(found, Kind.LEARNT)


def test_a_gain_from_reaching_is_a_caution_although_using_it_better_is_shown_too():
    found = findings(RISE, split(part(0.3), part(0.2), part(0.0)))
    assert "+20.0 [+18.0, +22.0] from accuracy" in said(found, Kind.CAUTION)
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
