"""What the machine could do at best."""

from collections.abc import Sequence

from benchmarks.speed.figures import Source, Trial, spread
from benchmarks.speed.parts.part import Part
from benchmarks.speed.rounds import Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Line

MACHINE = "machine"


def limits(options: Options) -> Contestant:
    """The contestant that shows what can be had."""
    task = {"seconds": 0.2 if options.quick else 1.0}
    return Contestant(name=MACHINE, subject="machine", task=task)


def measure(options: Options) -> Outcome:
    """Matrix products and memory."""
    return take_turns([limits(options)], options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """One line for each product, and for memory."""
    cases = dict.fromkeys(trial.case for trial in trials if trial.subject == MACHINE)
    return [_line(trials, case) for case in cases]


def _line(trials: Sequence[Trial], case: str) -> Line:
    memory = case.startswith("memory")
    figure = "gb_per_s" if memory else "gflops"
    found = spread(trials, Source(subject=MACHINE, case=case, figure=figure))
    what = case if memory else f"product, {case}"
    return Line(what=what, unit="GB/s" if memory else "GFLOP/s", theirs=found)


PART = Part(name="machine", measure=measure, lines=lines)
