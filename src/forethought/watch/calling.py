"""What exams say of calling the tool: where a gain comes from, and whether *when* was learnt."""

from collections.abc import Iterator

from forethought.evaluation.results import Estimate
from forethought.watch.exams import SatExam, compare, percent, points, signed
from forethought.watch.finding import Finding, Kind
from forethought.watch.sources import Sources

ALWAYS = 0.95
"""From this share of attempts on, calling tells no problem from another."""


def gain(start: SatExam, last: SatExam, split: Sources) -> Iterator[Finding]:
    """Where a gain comes from; only a part whose interval excludes zero is said to be learnt."""
    if compare(start, last, "average").sign <= 0:
        return
    first, second = start.result.sampled_tools, last.result.sampled_tools
    mostly_reaching = split.reaching.value > split.total / 2
    shown = split.with_tool.low > 0 or split.without_tool.low > 0
    often = "more" if second.rate >= first.rate else "less"
    reaching = f"reaching for the tool {often} often"
    yield Finding(
        kind=Kind.LEARNT if shown and not mostly_reaching else Kind.CAUTION,
        text=f"Of the {signed(split.total)} points of sampled accuracy, {_part(split.reaching)} "
        f"come from {reaching} ({percent(first.rate)} → "
        f"{percent(second.rate)}), {_part(split.with_tool)} from accuracy with it, "
        f"and {_part(split.without_tool)} from accuracy without it.",
    )
    parts = {
        reaching: split.reaching,
        "accuracy with the tool": split.with_tool,
        "accuracy without it": split.without_tool,
    }
    unclear = [name for name, part in parts.items() if _holds_zero(part)]
    if not unclear:
        return
    hold = "its interval holds" if len(unclear) == 1 else "their intervals hold"
    text = f"That any of the gain comes from {' or from '.join(unclear)} is not shown: {hold} zero."
    if mostly_reaching and _holds_zero(split.with_tool):
        earlier, later = percent(first.right_with_tool), percent(second.right_with_tool)
        text += (
            f" Accuracy given the tool did not move measurably ({earlier} → {later}): that it is "
            "used better is not shown."
        )
    yield Finding(kind=Kind.NOT_SHOWN, text=text)


def when(start: SatExam, last: SatExam) -> Finding:
    """Whether the model tells when to call: where it always or never calls, it does not.

    An exam's rates say nothing more of it: whether calls fall on the problems that need them would
    take attempts at each with and without the tool.
    """
    first, second = start.result.sampled_tools.rate, last.result.sampled_tools.rate
    moved = f"{percent(first)} → {percent(second)} of sampled attempts call the tool"
    for habit, has, had in (
        ("always", second >= ALWAYS, first >= ALWAYS),
        ("never", second <= 1 - ALWAYS, first <= 1 - ALWAYS),
    ):
        if has and had:
            text = f"When to call was not seen to be learnt: it all but {habit} calls, as before"
            return Finding(kind=Kind.NOT_SHOWN, text=f"{text} ({moved}).")
        if has:
            text = f"When to call was not seen to be learnt: {moved}. It all but {habit} calls."
            return Finding(kind=Kind.NOT_SHOWN, text=text)
    return Finding(
        kind=Kind.NOT_SHOWN,
        text=f"Whether it learnt when to call is not known: {moved}, which does not say whether "
        "those are the attempts that need it.",
    )


def _holds_zero(part: Estimate) -> bool:
    return part.low <= 0 <= part.high


def _part(estimate: Estimate) -> str:
    return points(estimate).replace(" points", "")
