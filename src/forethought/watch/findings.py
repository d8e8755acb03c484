"""What a run may claim to have learnt, and what it may not: rules over exams' intervals.

A gain is claimed only where the paired interval excludes zero. Everything here is a sentence for
a reader who was not there.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forethought.evaluation.results import ExamResult
from forethought.watch.exams import (
    CONTROL,
    Difference,
    SatExam,
    compare,
    earlier_exam,
    percent,
    points,
    starting_exam,
)

_Z95 = 1.96


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A change of accuracy split by where it comes from; the parts add up to the change.

    With rate r and accuracy w with and o without the tool, accuracy is rw + (1-r)o; each part is
    the change of one factor times the mean of the others.
    """

    reaching: float
    with_tool: float
    without_tool: float


def findings(exams: Sequence[SatExam]) -> list[Finding]:
    """Every sentence that the exams support, in the order in which it matters."""
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
        found += _tool_story(start, last)
    if control is not None:
        found.append(_against_control(control, last))
    if start is not None:
        found += _side_effects(start.result, last.result)
    return found + list(_cautions(last.result))


def sources(before: ExamResult, after: ExamResult) -> Sources:
    """Split the change of sampled accuracy between calling more often and being right more often.

    Where one exam has no attempts with (or without) the tool, the other's accuracy stands in:
    that part is then zero.
    """
    first, second = before.sampled_tools, after.sampled_tools
    w0, w1 = _paired(first.right_with_tool, second.right_with_tool)
    o0, o1 = _paired(first.right_without_tool, second.right_without_tool)
    rate = (first.rate + second.rate) / 2
    return Sources(
        reaching=(second.rate - first.rate) * ((w0 + w1) - (o0 + o1)) / 2,
        with_tool=(w1 - w0) * rate,
        without_tool=(o1 - o0) * (1 - rate),
    )


def _paired(first: float | None, second: float | None) -> tuple[float, float]:
    one = second if first is None else first
    other = first if second is None else second
    return one or 0.0, other or 0.0


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


def _tool_story(start: SatExam, last: SatExam) -> Iterator[Finding]:
    if compare(start, last, "average").sign <= 0:
        return
    before, after = start.result, last.result
    parts = sources(before, after)
    total = parts.reaching + parts.with_tool + parts.without_tool
    first, second = before.sampled_tools.rate, after.sampled_tools.rate
    often = "more" if second >= first else "less"
    yield Finding(
        kind=Kind.LEARNT if parts.reaching <= total / 2 else Kind.CAUTION,
        text=f"Of the {_signed(total)} points of sampled accuracy, {_signed(parts.reaching)} come "
        f"from reaching for the tool {often} often ({percent(first)} → {percent(second)}), "
        f"{_signed(parts.with_tool)} from being right more often with it, and "
        f"{_signed(parts.without_tool)} from being right more often without it.",
    )
    if parts.reaching > total / 2 and not _moved(before, after):
        earlier = percent(before.sampled_tools.right_with_tool)
        later = percent(after.sampled_tools.right_with_tool)
        yield Finding(
            kind=Kind.NOT_SHOWN,
            text=f"Accuracy given the tool did not move measurably ({earlier} → {later}): the "
            "gain is mostly reaching for the tool more often, not using it better.",
        )


def _moved(before: ExamResult, after: ExamResult) -> bool:
    """Whether accuracy with the tool differs by more than chance allows.

    Attempts at one problem are alike, so a problem counts once however often it was attempted;
    the margin is too wide rather than too narrow.
    """
    first, second = before.sampled_tools, after.sampled_tools
    if first.right_with_tool is None or second.right_with_tool is None:
        return False
    mean = (first.right_with_tool + second.right_with_tool) / 2
    counts = (first.rate * len(before.problems), second.rate * len(after.problems))
    if min(counts) < 1:
        return False
    error = math.sqrt(mean * (1 - mean) * sum(1 / count for count in counts))
    return abs(second.right_with_tool - first.right_with_tool) > _Z95 * error


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


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}".replace("-", "\N{MINUS SIGN}")
