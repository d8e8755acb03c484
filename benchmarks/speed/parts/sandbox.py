"""How fast the Python tool answers, alone and beside hostile calls."""

from collections.abc import Sequence

from benchmarks.speed.figures import Source, Spread, Trial, spread
from benchmarks.speed.parts.part import Part, share
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

PROGRAMS = (("print", 2), ("fractions", 2), ("print", 8))
"""What is called, and by how many clients."""
FIGURES = {
    "calls_per_s": ("", "calls/s", None),
    "p50_ms": (", median", "ms", Goal(bound=4, at_most=True)),
    "p95_ms": (", 95 % are faster than", "ms", None),
}
"""What is shown of each case: words, the unit, and what it should be beside hostile calls."""
QUIET, LOADED = "quiet", "a tenth of all calls hostile"
"""What the cases with a crowd end with."""


def measure(options: Options) -> Outcome:
    """Plain calls by a few clients, then by a crowd without and with hostile ones beside."""
    task = {
        "programs": PROGRAMS[:1] if options.quick else PROGRAMS,
        "calls": 100 if options.quick else 2000,
        "load_seconds": 2 if options.quick else 20,
    }
    return take_turns([Contestant(name=OURS, subject="ours_sandbox", task=task)], options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Calls a second and latencies; beside hostile calls, against those without; wrong replies."""
    cases = list(dict.fromkeys(trial.case for trial in trials))
    return [*(line for case in cases for line in _of(trials, case, cases)), *_wrong(trials)]


def _of(trials: Sequence[Trial], case: str, cases: Sequence[str]) -> list[Line]:
    kind = case.removesuffix(LOADED)
    quiet = f"{kind}{QUIET}"
    if kind == case or quiet not in cases:
        return [
            Line(what=f"{case}{words}", unit=unit, ours=spread(trials, _source(case, figure)))
            for figure, (words, unit, _) in FIGURES.items()
        ]
    hostile = _source(case, "hostile_share", scale=100)
    return [
        *(
            share(
                trials,
                f"{case}{words}: against quiet",
                unit,
                (_source(case, figure), _source(quiet, figure)),
                goal,
            )
            for figure, (words, unit, goal) in FIGURES.items()
        ),
        Line(what=f"{case}: their share", unit="%", ours=spread(trials, hostile)),
    ]


def _wrong(trials: Sequence[Trial]) -> list[Line]:
    """Wrong replies to benign calls, over all cases and rounds; none where nobody looked."""
    looked = [trial.figures for trial in trials if "wrong_replies" in trial.figures]
    if not looked:
        return []
    wrong, calls = (
        sum(each[figure] for each in looked) for figure in ("wrong_replies", "benign_calls")
    )
    return [
        Line(
            what="wrong replies, of all benign calls",
            unit="calls",
            ours=Spread.of([wrong]),
            theirs=Spread.of([calls]),
            ratio=Spread.of([wrong / calls]),
            goal=Goal(bound=0, at_most=True, percent=True),
        )
    ]


def _source(case: str, figure: str, scale: float = 1.0) -> Source:
    return Source(subject=OURS, case=case, figure=figure, scale=scale)


PART = Part(name="sandbox", measure=measure, lines=lines)
