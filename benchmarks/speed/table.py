"""Tables of what was measured, beside the goals, and their place in the documentation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.figures import Spread

HEAD = (
    "| what | unit | Forethought | compared with | ratio | goal | met |\n"
    "|---|---|---|---|---|---|---|"
)
BEGIN, END = "<!-- begin {part} -->", "<!-- end {part} -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a ratio should be: at least, or at most, this. `percent` is how it is written."""

    bound: float
    at_most: bool = False
    percent: bool = False

    def met(self, ratio: float) -> bool:
        """Whether a ratio reaches it.

        >>> Goal(bound=4).met(4.0), Goal(bound=0.4, at_most=True).met(0.5)
        (True, False)
        """
        return ratio <= self.bound if self.at_most else ratio >= self.bound

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {_ratio(self.bound, percent=self.percent)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a table. What was not measured is None and stays empty."""

    what: str
    unit: str = ""
    ours: Spread | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None
    goal: Goal | None = None
    percent: bool = False


def table(lines: Iterable[Line]) -> str:
    """The lines as Markdown."""
    return "\n".join([HEAD, *map(_row, lines)])


def number(value: float) -> str:
    """Three digits, or all that stand before the point.

    >>> number(1234.5), number(12.34), number(0.00123), number(0.0)
    ('1,234', '12.3', '0.00123', '0')
    """
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def written(spread: Spread | None) -> str:
    """A median, with the least and the greatest where there were several values."""
    if spread is None:
        return ""
    middle = number(spread.middle)
    if spread.count == 1:
        return middle
    return f"{middle} ({number(spread.least)} to {number(spread.greatest)})"


def _row(line: Line) -> str:
    percent = line.percent or (line.goal is not None and line.goal.percent)
    ratio, met = "", ""
    if line.ratio is not None:
        ratio = _ratio(line.ratio.middle, percent=percent)
        if line.ratio.count > 1:
            ends = (line.ratio.least, line.ratio.greatest)
            ratio += f" ({' to '.join(_ratio(each, percent=percent) for each in ends)})"
        if line.goal is not None:
            met = "yes" if line.goal.met(line.ratio.middle) else "no"
    cells = (
        line.what,
        line.unit,
        written(line.ours),
        written(line.theirs),
        ratio,
        str(line.goal or ""),
        met,
    )
    return f"| {' | '.join(cells)} |"


def _ratio(value: float, *, percent: bool) -> str:
    return f"{100 * value:.0f} %" if percent else f"{value:.2f}x"


def put(page: Path, part: str, text: str) -> None:
    """Put `text` between the marks of `part` in a page, in place of what stands there.

    Raises ValueError for a page without those marks.
    """
    begin, end = BEGIN.format(part=part), END.format(part=part)
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no marks {begin} and {end}: add them where the table belongs")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def cells(page: Path, part: str) -> list[list[str]]:
    """The rows of the table that stands between the marks of `part`, without its head."""
    text = page.read_text(encoding="utf-8").partition(BEGIN.format(part=part))[2]
    lines = text.partition(END.format(part=part))[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def plain(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with any columns."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
