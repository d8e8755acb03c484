"""The table of exams: every measure, what it means, and by which method its interval came."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from forethought.evaluation.results import Estimate, ExamResult
from forethought.watch.exams import SatExam, interval, percent

NORMAL = "the normal approximation to the mean over problems"
BOOTSTRAP = "a percentile bootstrap over problems"
WILSON = "Wilson's score interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One figure of the table; `interval` is empty where none was computed."""

    value: str
    interval: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measure over all exams; `method` says how its intervals came, if it has any."""

    name: str
    meaning: str
    method: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How one row is read from an exam's result."""

    name: str
    meaning: str
    cell: Callable[[ExamResult], Cell]
    method: str = ""


def table(exams: Sequence[SatExam]) -> list[Row]:
    """The headline table: one row a measure, one cell an exam."""
    return [
        Row(
            name=one.name,
            meaning=one.meaning,
            method=one.method,
            cells=tuple(one.cell(exam.result) for exam in exams),
        )
        for one in _MEASURES
    ]


def methods(rows: Sequence[Row]) -> str:
    """Which interval is which, in words: the rows with intervals, by method."""
    named: dict[str, list[str]] = {}
    for row in rows:
        if row.method:
            named.setdefault(row.method, []).append(row.name)
    return "; ".join(f"{' and '.join(names)}: {method}" for method, names in named.items())


def _estimate(
    name: str, meaning: str, method: str, read: Callable[[ExamResult], Estimate]
) -> Measure:
    def cell(result: ExamResult) -> Cell:
        estimate = read(result)
        return Cell(value=percent(estimate.value), interval=interval(estimate))

    return Measure(name=name, meaning=meaning, cell=cell, method=method)


def _share(name: str, meaning: str, read: Callable[[ExamResult], float | None]) -> Measure:
    return Measure(
        name=name, meaning=meaning, cell=lambda result: Cell(value=percent(read(result)))
    )


def _number(name: str, meaning: str, shown: str, read: Callable[[ExamResult], float]) -> Measure:
    return Measure(
        name=name, meaning=meaning, cell=lambda result: Cell(value=format(read(result), shown))
    )


def _measures() -> Iterator[Measure]:
    """Accuracies with the intervals that `evaluation.exam` gives them, then how it was done."""
    yield _estimate("avg@k", "sampled attempts that are right", NORMAL, lambda r: r.average)
    yield _estimate(
        "pass@k", "problems solved at least once in k attempts", BOOTSTRAP, lambda r: r.coverage
    )
    yield _estimate(
        "maj@k", "problems whose commonest answer is right", BOOTSTRAP, lambda r: r.majority
    )
    yield _estimate(
        "greedy", "right when the likeliest token is always taken", WILSON, lambda r: r.greedy
    )
    yield _share("tool rate", "sampled attempts that call the tool", lambda r: r.sampled_tools.rate)
    yield _share("tool rate, greedy", "the same, greedily", lambda r: r.greedy_tools.rate)
    yield _number("calls", "calls a sampled attempt", ".2f", lambda r: r.sampled_tools.calls)
    yield _share("tool success", "calls that went well", lambda r: r.sampled_tools.success)
    yield _share(
        "right with the tool",
        "of the attempts that called it",
        lambda r: r.sampled_tools.right_with_tool,
    )
    yield _share(
        "right without it",
        "of the attempts that did not",
        lambda r: r.sampled_tools.right_without_tool,
    )
    yield _number("entropy", "nats a sampled token", ".3f", lambda r: r.entropy)
    yield _number("tokens", "sampled tokens an attempt", ".0f", lambda r: r.tokens)
    yield _share("unfinished", "attempts that ran into a limit", lambda r: r.unfinished)
    yield _number("not measured", "attempts lost to infrastructure", "d", lambda r: r.not_measured)


_MEASURES = tuple(_measures())
