"""Whether a token of an attempt costs more when there are more attempts in a step."""

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.speed.figures import Source, Trial, ratios, spread
from benchmarks.speed.models import QWEN3_1M, problems, taught
from benchmarks.speed.parts.part import Part
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

COUNTS = (32, 128, 256, 512, 1024)
AT_ONCE = f"{OURS}, all at once"
WAYS = {OURS: "as configured", AT_ONCE: "all at once"}
GOAL = Goal(bound=1.2, at_most=True)


def measure(options: Options) -> Outcome:
    """Attempts by the small model, with as many open as a recipe's default and with all open."""
    folder = taught(QWEN3_1M, options.cache, options.problems, options.threads)
    counts = (32, 64) if options.quick else COUNTS
    task = {
        "model": str(folder),
        "problems": [asdict(each) for each in problems(QWEN3_1M, options.problems)],
        "counts": counts,
        "group": 8,
        "tokens": 120,
        "turns": 2,
    }
    everything = {**task, "compute": {"at_once": max(counts)}}
    contestants = [
        Contestant(name=OURS, subject="ours_rollouts", task=task),
        Contestant(name=AT_ONCE, subject="ours_rollouts", task=everything),
    ]
    return take_turns(contestants, options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Time for a token at every number of episodes, against that at the smallest."""
    found: list[Line] = []
    for subject, way in WAYS.items():
        cases = list(dict.fromkeys(each.case for each in trials if each.subject == subject))
        sources = [
            Source(subject=subject, case=case, figure="seconds", per="tokens", scale=1e3)
            for case in cases
        ]
        for source in sources:
            larger = source != sources[0]
            found.append(
                Line(
                    what=f"{source.case}, {way}",
                    unit="ms a token",
                    ours=spread(trials, source),
                    theirs=spread(trials, sources[0]) if larger else None,
                    ratio=ratios(trials, source, sources[0]) if larger else None,
                    goal=GOAL if larger else None,
                )
            )
    return found


PART = Part(name="growth", measure=measure, lines=lines)
