"""Whether a tool slower than the model keeps the model waiting.

It does where too few conversations are open: then those that wait leave too little to do. So as
many are opened as this machine needs, which is found out first.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from benchmarks.speed.figures import Source, Trial, spread
from benchmarks.speed.models import QWEN3_1M, problems, taught
from benchmarks.speed.parts.part import Part, beside, share
from benchmarks.speed.rounds import Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

INSTANT, SLOW = "instant tool", "slow tool"
SECONDS = {INSTANT: 0.0, SLOW: 2.0}
CASE = "kept open"
GOAL = Goal(bound=0.9, percent=True)
WAITING = 0.25
"""The share of conversations that may wait for the slow tool at any time."""


def measure(options: Options) -> Outcome:
    """The same stream of conversations with a tool of no and of two seconds.

    How many there are follows from the calls that the fewest make with a tool of no seconds.
    """
    folder = taught(QWEN3_1M, options.cache, options.problems, options.threads)
    fewest, most = (128, 256) if options.quick else (1024, 4096)
    task: dict[str, Any] = {
        "case": CASE,
        "model": str(folder),
        "problems": [asdict(each) for each in problems(QWEN3_1M, options.problems)],
        "tokens": 120,
        "turns": 2,
        "open": fewest,
        "warm_seconds": 3 if options.quick else 10,
        "seconds": 5 if options.quick else 30,
        "tool_seconds": SECONDS[INSTANT],
        "compute": {"deterministic": False},
    }
    first = Contestant(name=f"{INSTANT}, how many calls", subject="ours_tools", task=task)
    (trial,) = take_turns([first], replace(options, rounds=1)).trials
    count = enough(trial.figures["calls_per_s"], fewest, most)
    task |= {"open": count, "warm_seconds": task["warm_seconds"] * count / fewest}
    print(f"  {count} conversations are kept open", flush=True)
    contestants = [
        Contestant(name=name, subject="ours_tools", task={**task, "tool_seconds": seconds})
        for name, seconds in SECONDS.items()
    ]
    return take_turns(contestants, options)


def enough(calls_per_s: float, fewest: int, most: int) -> int:
    """How many conversations to open, so that `WAITING` of them wait for the slow tool on average.

    As many wait as make a call in the time that the tool takes.

    >>> enough(170.0, 1024, 4096), enough(1.0, 1024, 4096), enough(1000.0, 1024, 4096)
    (1360, 1024, 4096)
    """
    return min(max(math.ceil(calls_per_s * SECONDS[SLOW] / WAITING), fewest), most)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Tokens per second with the slow tool against those with the instant one, and how many spoke.

    Results that do not say how many conversations there were have a line less for it.
    """
    what = "a tool of 2 s, against an instant one"
    waiting = replace(_source(SLOW, "waiting_share"), scale=100)
    found = [
        share(trials, what, "tokens/s", _pair("tokens_per_s"), GOAL),
        beside(trials, "conversations kept open", "", _pair("open")),
        Line(what="of them, waiting for the tool of 2 s", unit="%", ours=spread(trials, waiting)),
    ]
    return [line for line in found if line.ours is not None]


def _pair(figure: str) -> tuple[Source, Source]:
    return _source(SLOW, figure), _source(INSTANT, figure)


def _source(subject: str, figure: str) -> Source:
    return Source(subject=subject, case=CASE, figure=figure)


PART = Part(name="tools", measure=measure, lines=lines)
