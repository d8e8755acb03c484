"""What a run may claim to have learnt, and what it may not: rules over exams' intervals.

A gain is claimed only where the paired interval excludes zero; each comparison whose interval holds
zero is said to show nothing, and each part of the exam whose interval lies below zero is named.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from forethought.evaluation.comparison import What, solved
from forethought.evaluation.results import ExamResult
from forethought.watch import calling
from forethought.watch.exams import (
    CONTROL,
    Difference,
    Part,
    SatExam,
    compare,
    earlier_exam,
    percent,
    points,
    starting_exam,
)
from forethought.watch.finding import Finding, Kind
from forethought.watch.phases import Phase, handicap
from forethought.watch.sources import Sources

_COMPARED: tuple[What, ...] = ("average", "greedy", "coverage")
_CONTROL = "the checkpoint trained with tool demonstrations only (“tool only”)"
_KINDS = {1: Kind.LEARNT, 0: Kind.NOT_SHOWN, -1: Kind.LOST}


def findings(
    exams: Sequence[SatExam],
    split: Sources | None = None,
    *,
    phases: Sequence[Phase] = (),
    parts: Mapping[str, Sequence[Part]] | None = None,
    paid: Finding | None = None,
) -> list[Finding]:
    """Every sentence that the exams support, in the order in which it matters.

    `split` says where the change between the exam before training and the last one comes from;
    `phases` are the recipe's; `parts` are the exam's by kind ("family", say); `paid` says what else
    than right answers practice paid for. What is not given is not spoken of.
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
        found += _compare_all(start, last, _change)
        found += [] if split is None else calling.gain(start, last, split)
        found.append(calling.when(start, last))
        found += [] if paid is None else [paid]
    if (held_back := handicap(phases, exams)) is not None:
        found.append(held_back)
    if control is not None:
        found += _compare_all(control, last, _against_control)
    for kind, of_kind in (parts or {}).items():
        found += _by_part(kind, of_kind)
    if start is not None:
        found += _side_effects(start.result, last.result)
    return found + list(_cautions(last.result))


def _compare_all(
    earlier: SatExam, last: SatExam, words: Callable[[Difference, str], str]
) -> Iterator[Finding]:
    """A finding for each figure; `words` tells a difference and its size ("" where not known)."""
    for what in _COMPARED:
        difference = compare(earlier, last, what)
        if difference.estimate is None:
            kind, size = Kind.CAUTION, ""
        else:
            kind, size = _KINDS[difference.sign], points(difference.estimate)
        yield Finding(kind=kind, text=words(difference, size))


def _change(difference: Difference, size: str) -> str:
    name, before = _name(difference), difference.earlier
    if difference.estimate is None:
        return f"{name}: {difference.refusal}."
    match difference.sign:
        case 1:
            return f"{name} rose by {size} over the exam “{before.title}”."
        case -1:
            return f"{name} fell: {size} against the exam “{before.title}”."
        case _:
            return _no_change(difference, size)


def _no_change(difference: Difference, size: str) -> str:
    text = (
        f"{_name(difference)} did not change measurably against the exam "
        f"“{difference.earlier.title}”: {size}, an interval that holds zero."
    )
    if difference.what == "coverage":
        found = solved(difference.earlier.result, difference.later.result)
        gained, lost = len(found.gained), len(found.lost)
        return f"{text} Problems solved only after: {gained}; only before: {lost}."
    return text


def _against_control(difference: Difference, size: str) -> str:
    name = _name(difference)
    if difference.estimate is None:
        return f"{name} against {_CONTROL}: {difference.refusal}."
    match difference.sign:
        case 1:
            return f"{name} exceeds that of {_CONTROL} by {size}."
        case -1:
            return f"{name} falls short of that of {_CONTROL}: {size}."
        case _:
            return _not_exceeded(difference, size)


def _not_exceeded(difference: Difference, size: str) -> str:
    text = (
        f"{_name(difference)} is not shown to differ from that of {_CONTROL}: {size}, an "
        "interval that holds zero."
    )
    if difference.what == "average":
        return (
            f"{text} So this run does not show that practice adds more than reaching for the tool."
        )
    return text


def _by_part(kind: str, parts: Sequence[Part]) -> Iterator[Finding]:
    """The parts of one kind that fell, and those whose change may be none."""
    compared = {part.name: part.difference for part in parts if part.difference}
    known = {name: one for name, one in compared.items() if one.estimate}
    fell = [
        f"{name} ({points(one.estimate)})"
        for name, one in known.items()
        if one.sign < 0 and one.estimate
    ]
    if fell:
        yield Finding(
            kind=Kind.LOST,
            text=f"By {kind}, {len(fell)} of {len(known)} changes of sampled accuracy "
            f"{'has' if len(fell) == 1 else 'have'} an interval below zero: {', '.join(fell)}.",
        )
    unclear = [name for name, one in known.items() if not one.sign]
    if unclear:
        yield Finding(
            kind=Kind.NOT_SHOWN,
            text=f"By {kind}, {len(unclear)} of {len(known)} changes of sampled accuracy "
            f"{'has' if len(unclear) == 1 else 'have'} an interval that holds zero: "
            f"{', '.join(unclear)}.",
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
