"""How fast gradients are made, against padded rows and against what products allow."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from benchmarks.speed.figures import Source, Trial
from benchmarks.speed.parts.part import GB, Part, share
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

from forethought.learning.precision import has_bfloat16

GOALS = {"packed": Goal(bound=0.6, percent=True), "bfloat16": None}
"""Our ways, and which share of the product each should reach."""


def measure(options: Options) -> Outcome:
    """Gradients of both sizes, with rows of mixed length and with prompts that a group shares."""
    task = {"cases": cases_of(options)}
    return take_turns([Contestant(name=OURS, subject="ours_training", task=task)], options)


def cases_of(options: Options) -> list[dict[str, object]]:
    """Each case: a name, and options of `benchmarks.training_speed`.

    The large shape has all threads; the small one has one, as each of its workers has.
    """
    if options.quick:
        return [_case("0.9M, 8 rows", "small", 1, 8, 1)]
    cores = options.threads
    return [
        _case("0.9M, 48 rows", "small", 1, 48, 1),
        _case("0.9M, 48 rows, a prompt shared by 8", "small", 1, 48, 8),
        _case("SmolLM2 shape, 8 rows", "smollm2", cores, 8, 1),
        _case("SmolLM2 shape, 8 rows, a prompt shared by 8", "smollm2", cores, 8, 8),
    ]


def _case(name: str, model: str, threads: int, rows: int, group: int) -> dict[str, object]:
    numbers = {"--threads": threads, "--rows": rows, "--group": group, "--turns": 2}
    words = [model, *(word for pair in numbers.items() for word in map(str, pair))]
    return {"name": name, "words": [*words, "--ways", "padded", *ways()]}


def ways() -> list[str]:
    """Our ways on this machine: bfloat16 where it need not be imitated, which takes minutes."""
    native = has_bfloat16(torch.device("cpu"))
    return [way for way in GOALS if native or way != "bfloat16"]


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Tokens a second and memory against padded rows; operations against the best product."""
    names = dict.fromkeys(trial.case.rpartition(": ")[0] for trial in trials)
    return [line for name in names for line in _of(trials, name)]


def _of(trials: Sequence[Trial], name: str) -> list[Line]:
    def pair(way: str, figure: str, per: str = "", scale: float = 1.0) -> tuple[Source, Source]:
        ours, padded = (
            Source(subject=OURS, case=f"{name}: {each}", figure=figure, per=per, scale=scale)
            for each in (way, "padded")
        )
        return ours, padded

    found: list[Line] = []
    for way, goal in GOALS.items():
        if not any(trial.case == f"{name}: {way}" for trial in trials):
            continue
        speed = pair(way, "tokens", "seconds")
        work, product = (
            Source(subject=OURS, case=f"{name}: {way}", figure=figure)
            for figure in ("honest_gflops", "product_gflops")
        )
        what = f"{name}, {way}, of the float32 product"
        part = share(trials, what, "GFLOP/s", (work, product), goal)
        found += [
            share(trials, f"{name}, {way}, against padded", "tokens/s", speed, None),
            replace(part, percent=True),
        ]
    memory = pair("packed", "memory", scale=GB)
    return [*found, share(trials, f"{name}, packed: peak memory", "GB", memory, None)]


PART = Part(name="training", measure=measure, lines=lines)
