"""Whether a tool slower than the model keeps the model waiting."""

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.speed.figures import Source, Trial
from benchmarks.speed.models import QWEN3_1M, problems, taught
from benchmarks.speed.parts.part import Part, share
from benchmarks.speed.rounds import Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

INSTANT, SLOW = "instant tool", "slow tool"
SECONDS = {INSTANT: 0.0, SLOW: 2.0}
CASE = "kept open"
GOAL = Goal(bound=0.9, percent=True)


def measure(options: Options) -> Outcome:
    """The same stream of conversations with a tool of no and of two seconds."""
    folder = taught(QWEN3_1M, options.cache, options.problems, options.threads)
    task = {
        "case": CASE,
        "model": str(folder),
        "problems": [asdict(each) for each in problems(QWEN3_1M, options.problems)],
        "tokens": 120,
        "turns": 2,
        "open": 128 if options.quick else 1024,
        "warm_seconds": 3 if options.quick else 10,
        "seconds": 5 if options.quick else 30,
        "compute": {"deterministic": False},
    }
    contestants = [
        Contestant(name=name, subject="ours_tools", task={**task, "tool_seconds": seconds})
        for name, seconds in SECONDS.items()
    ]
    return take_turns(contestants, options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Tokens per second with the slow tool against those with the instant one."""
    pair = (_source(SLOW, "tokens_per_s"), _source(INSTANT, "tokens_per_s"))
    what = "a tool of 2 s, against an instant one"
    return [share(trials, what, "tokens/s", pair, GOAL)]


def _source(subject: str, figure: str) -> Source:
    return Source(subject=subject, case=CASE, figure=figure)


PART = Part(name="tools", measure=measure, lines=lines)
