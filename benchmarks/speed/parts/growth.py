"""Whether a token costs more when there are more attempts in a step: to sample, and in all."""

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.speed.figures import Source, Trial, ratios, spread
from benchmarks.speed.models import QWEN3_1M, problems, taught
from benchmarks.speed.parts.part import Part
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

COUNTS = (32, 128, 256, 512, 1024)
STEPS = {32: 8, 1024: 2}
"""Whole steps of so many episodes, and how many of them are timed, after one that is not."""
GROUP = 8
AT_ONCE, STEP = f"{OURS}, all at once", f"{OURS}, a whole step"
WAYS = {
    OURS: ("as configured", {"seconds": ""}),
    AT_ONCE: ("all at once", {"seconds": ""}),
    STEP: (
        "a whole step",
        {"seconds": "", "attempt_seconds": ", its attempts", "learn_seconds": ", its learning"},
    ),
}
"""Whom there is to measure: in words, and the figures that are shown of each."""
GOAL = Goal(bound=1.2, at_most=True)


def measure(options: Options) -> Outcome:
    """Attempts by the small model, with as many open as a recipe's default and with all open.

    Then whole steps as configured. Each number of episodes has a process of its own, so that none
    is warmer than another.
    """
    folder = taught(QWEN3_1M, options.cache, options.problems, options.threads)
    task = {
        "model": str(folder),
        "problems": [asdict(each) for each in problems(QWEN3_1M, options.problems)],
        "group": GROUP,
        "tokens": 120,
        "turns": 2,
    }
    counts = (32, 64) if options.quick else COUNTS
    steps = {32: 1, 64: 1} if options.quick else STEPS
    contestants: list[Contestant] = []
    for count in counts:
        mine = {**task, "case": f"{count} episodes", "count": count, "warm": min(counts)}
        everything = {**mine, "compute": {"at_once": max(counts)}}
        contestants += [
            Contestant(name=OURS, subject="ours_rollouts", task=mine),
            Contestant(name=AT_ONCE, subject="ours_rollouts", task=everything),
        ]
    for count, timed in steps.items():
        mine = {**task, "case": f"{count} episodes", "prompts": count // GROUP}
        mine |= {"warm": 1, "steps": timed}
        contestants.append(Contestant(name=STEP, subject="ours_step", task=mine))
    return take_turns(contestants, options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Time for a token at every number of episodes, against that at the smallest."""
    return [
        line
        for subject, (way, shown) in WAYS.items()
        for figure, words in shown.items()
        for line in _of(trials, subject, figure, f"{way}{words}")
    ]


def _of(trials: Sequence[Trial], subject: str, figure: str, words: str) -> list[Line]:
    cases = {trial.case for trial in trials if trial.subject == subject}
    sources = [
        Source(subject=subject, case=case, figure=figure, per="tokens", scale=1e3)
        for case in sorted(cases, key=_count)
    ]
    found: list[Line] = []
    for source in sources:
        larger = source != sources[0]
        found.append(
            Line(
                what=f"{source.case}, {words}",
                unit="ms a token",
                ours=spread(trials, source),
                theirs=spread(trials, sources[0]) if larger else None,
                ratio=ratios(trials, source, sources[0]) if larger else None,
                goal=GOAL if larger and figure == "seconds" else None,
            )
        )
    return found


def _count(case: str) -> int:
    return int(case.partition(" ")[0])


PART = Part(name="growth", measure=measure, lines=lines)
