"""How near sampling one token a row comes to what matrix products allow."""

from collections.abc import Sequence

from benchmarks.speed.figures import Source, Trial, ratios, spread
from benchmarks.speed.models import SMOLLM2, problems, taught
from benchmarks.speed.parts.machine import MACHINE, limits
from benchmarks.speed.parts.part import Part
from benchmarks.speed.prompts import format_of, mixed_prompts
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

ROWS = {32: 96, 128: 48}
"""New tokens a row, by rows."""
GOAL = Goal(bound=0.4, percent=True)


def measure(options: Options) -> Outcome:
    """The machine's products and our decoding, in turns."""
    folder = taught(SMOLLM2, options.cache, options.problems, options.threads)
    chat = format_of(folder, SMOLLM2.format)
    prompts = [each[:64] for each in mixed_prompts(chat, problems(SMOLLM2, None), 130)]
    rows = {32: 16} if options.quick else ROWS
    cases = [
        {"name": f"B={count}", "prompts": prompts[:count], "stop": [], "new": new}
        for count, new in rows.items()
    ]
    task = {"model": str(folder), "cases": cases, "warm_prompts": prompts[128:]}
    ours = Contestant(name=OURS, subject="ours_decode", task=task)
    return take_turns([limits(options), ours], options)


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Our tokens per second, and their work as a share of the best product, and of their own."""
    threads = max(
        (trial.case.rpartition("=")[2] for trial in trials if trial.subject == MACHINE), key=int
    )
    found: list[Line] = []
    for case in dict.fromkeys(trial.case for trial in trials if trial.subject == OURS):
        speed = Source(subject=OURS, case=case, figure="tokens_per_s")
        work = Source(subject=OURS, case=case, figure="gflops")
        rows = case.partition("=")[2]
        found.append(
            Line(what=f"{case}, one token a row", unit="tokens/s", ours=spread(trials, speed))
        )
        for product, goal in (("best", GOAL), (f"M={rows}", None)):
            bound = Source(
                subject=MACHINE, case=f"float32 {product} threads={threads}", figure="gflops"
            )
            found.append(
                Line(
                    what=f"{case}, of the product ({product})",
                    unit="GFLOP/s",
                    ours=spread(trials, work),
                    theirs=spread(trials, bound),
                    ratio=ratios(trials, work, bound),
                    goal=goal,
                    percent=True,
                )
            )
    return found


PART = Part(name="decode", measure=measure, lines=lines)
