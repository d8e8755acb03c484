"""What a run may claim to have learnt, and what it may not: rules over exams' intervals.

A gain is claimed only where the paired interval excludes zero. Everything here is a sentence for
a reader who was not there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forethought.evaluation.results import Estimate, ExamResult
from forethought.watch.exams import (
    CONTROL,
    Difference,
    SatExam,
    compare,
    earlier_exam,
    percent,
    points,
    signed,
    starting_exam,
)
from forethought.watch.sources import Sources


class Kind(StrEnum):
    """What a finding is worth."""

    LEARNT = "learnt"
    NOT_SHOWN = "not shown"
    LOST = "lost"
    CAUTION = "caution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence about the run.

    >>> Finding(kind=Kind.LEARNT, text="avg@8 rose.").kind.value
    'learnt'
    """

    kind: Kind
    text: str


def findings(exams: Sequence[SatExam], split: Sources | None = None) -> list[Finding]:
    """Every sentence that the exams support, in the order in which it matters.

    `split` says where the change between the exam before training and the last one comes from;
    without it nothing is said of that.
    """
    if not exams:
        return [Finding(kind=Kind.NOT_SHOWN, text="No exam was sat, so nothing is known yet.")]
    start, control, last = starting_exam(exams), earlier_exam(exams, CONTROL), exams[-1]
    found: list[Finding] = []
    if start is None:
        found.append(
            Finding(
                kind=Kind.NOT_SHOWN,
                text="There is no exam from before and after training to compare: a single exam "
                "says how good a model is, not what it learnt.",
            )
        )
    else:
        found += _changes(start, last)
        found += [] if split is None else _tool_story(start, last, split)
    if control is not None:
        found.append(_against_control(control, last))
    if start is not None:
        found += _side_effects(start.result, last.result)
    return found + list(_cautions(last.result))


def _changes(start: SatExam, last: SatExam) -> Iterator[Finding]:
    for what in ("average", "greedy", "coverage"):
        difference = compare(start, last, what)
        if difference.estimate is None:
            yield Finding(kind=Kind.CAUTION, text=f"{_name(difference)}: {difference.refusal}.")
            continue
        size = points(difference.estimate)
        match difference.sign:
            case 1:
                text = f"{_name(difference)} rose by {size} over the exam “{start.title}”."
                yield Finding(kind=Kind.LEARNT, text=text)
            case -1:
                text = f"{_name(difference)} fell: {size} against the exam “{start.title}”."
                yield Finding(kind=Kind.LOST, text=text)
            case _:
                yield Finding(kind=Kind.NOT_SHOWN, text=_no_change(difference, size))


def _no_change(difference: Difference, size: str) -> str:
    text = f"{_name(difference)} did not change measurably: {size}, an interval that holds zero."
    if difference.what == "coverage":
        return f"{text} No problem that was out of reach before is shown to be in reach now."
    return text


def _tool_story(start: SatExam, last: SatExam, split: Sources) -> Iterator[Finding]:
    """Where a gain comes from; only a part whose interval excludes zero is said to be learnt."""
    if compare(start, last, "average").sign <= 0:
        return
    first, second = start.result.sampled_tools, last.result.sampled_tools
    mostly_reaching = split.reaching.value > split.total / 2
    shown = split.with_tool.low > 0 or split.without_tool.low > 0
    often = "more" if second.rate >= first.rate else "less"
    yield Finding(
        kind=Kind.LEARNT if shown and not mostly_reaching else Kind.CAUTION,
        text=f"Of the {signed(split.total)} points of sampled accuracy, {_part(split.reaching)} "
        f"come from reaching for the tool {often} often ({percent(first.rate)} → "
        f"{percent(second.rate)}), {_part(split.with_tool)} from being right more often with it, "
        f"and {_part(split.without_tool)} from being right more often without it.",
    )
    if mostly_reaching and split.with_tool.low <= 0 <= split.with_tool.high:
        earlier, later = percent(first.right_with_tool), percent(second.right_with_tool)
        yield Finding(
            kind=Kind.NOT_SHOWN,
            text=f"Accuracy given the tool did not move measurably ({earlier} → {later}): the "
            "gain is mostly reaching for the tool more often, not using it better.",
        )


def _against_control(control: SatExam, last: SatExam) -> Finding:
    difference = compare(control, last, "average")
    if difference.estimate is None:
        return Finding(kind=Kind.CAUTION, text=f"Tool-only control: {difference.refusal}.")
    size = points(difference.estimate)
    match difference.sign:
        case 1:
            text = f"The last model exceeds the tool-only control: {size} of {_name(difference)}."
            return Finding(kind=Kind.LEARNT, text=text)
        case -1:
            text = f"The last model falls short of the tool-only control: {size} of"
            return Finding(kind=Kind.LOST, text=f"{text} {_name(difference)}.")
        case _:
            return Finding(
                kind=Kind.NOT_SHOWN,
                text=f"The tool-only control is not exceeded: {size} of {_name(difference)}. A "
                "model that was never shown answers without the tool does as well, so this run "
                "does not show that practice adds more than reaching for the tool.",
            )


def _side_effects(before: ExamResult, after: ExamResult) -> Iterator[Finding]:
    if after.entropy < before.entropy / 2:
        yield Finding(
            kind=Kind.CAUTION,
            text=f"Entropy fell from {before.entropy:.3f} to {after.entropy:.3f} nats a token: "
            "attempts vary less than before, which leaves later practice less to choose from.",
        )
    if after.unfinished > before.unfinished + 0.05:
        yield Finding(
            kind=Kind.CAUTION,
            text=f"More attempts run into a limit: {percent(before.unfinished)} → "
            f"{percent(after.unfinished)}.",
        )


def _cautions(last: ExamResult) -> Iterator[Finding]:
    if last.not_measured:
        yield Finding(
            kind=Kind.CAUTION,
            text=f"{last.not_measured} attempts of the last exam were not measured, because "
            "infrastructure broke; they are in no figure.",
        )
    if len(last.problems) < 30:
        yield Finding(
            kind=Kind.CAUTION,
            text=f"The exam has only {len(last.problems)} problems: its intervals are rough.",
        )


def _name(difference: Difference) -> str:
    return "Greedy accuracy" if difference.what == "greedy" else difference.measure


def _part(estimate: Estimate) -> str:
    return points(estimate).replace(" points", "")
