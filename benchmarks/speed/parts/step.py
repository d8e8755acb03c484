"""A whole step of reinforcement learning with a tool, against TRL's GRPOTrainer."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.speed.environments import TRL, InstallError, python_of
from benchmarks.speed.figures import Source, Trial
from benchmarks.speed.models import QWEN3_3M, SMOLLM2, Model, problems, taught
from benchmarks.speed.parts.part import GB, Part, beside, share, sooner
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.table import Goal, Line

THEIRS = "trl"
GROUPS = {SMOLLM2: 4, QWEN3_3M: 16}
"""Problems in a step."""
GROUP = 8
"""Attempts at each."""
FASTER, SMALLER = Goal(bound=4), Goal(bound=0.4, at_most=True, percent=True)
STEPS = 3
"""Steps that are timed, after one that is not."""


def measure(options: Options) -> Outcome:
    """Both models, ours and TRL in turns."""
    outcome = Outcome()
    for model in GROUPS:
        task = _task(model, options)
        contestants = [Contestant(name=OURS, subject="ours_step", task=task)]
        try:
            contestants.append(
                Contestant(
                    name=THEIRS,
                    subject="trl_step",
                    task=task,
                    python=python_of(TRL, options.cache),
                )
            )
        except InstallError as error:
            outcome.failures[THEIRS] = str(error)
            print(f"  {THEIRS} cannot be installed:\n{error}", flush=True)
        outcome.add(take_turns(contestants, options))
    return outcome


def _task(model: Model, options: Options) -> dict[str, Any]:
    folder = taught(model, options.cache, options.problems, options.threads)
    return {
        "case": model.name,
        "model": str(folder),
        "format": model.format,
        "problems": [asdict(each) for each in problems(model, options.problems)],
        "prompts": 1 if options.quick else GROUPS[model],
        "group": GROUP,
        "tokens": 64 if options.quick else 256,
        "turns": 2,
        "warm": 1,
        "steps": 1 if options.quick else STEPS,
    }


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Time and memory of a step, and what was sampled in it."""
    return [line for model in GROUPS for line in _of(trials, model) if line.ours is not None]


def _of(trials: Sequence[Trial], model: Model) -> list[Line]:
    def pair(figure: str, per: str = "", scale: float = 1.0) -> tuple[Source, Source]:
        ours, theirs = (
            Source(subject=name, case=model.name, figure=figure, per=per, scale=scale)
            for name in (OURS, THEIRS)
        )
        return ours, theirs

    def what(words: str) -> str:
        return f"{model.title}: {words}"

    return [
        sooner(trials, what("a step"), "s", pair("seconds"), FASTER),
        sooner(trials, what("a generated token"), "ms", pair("seconds", "tokens", 1e3), FASTER),
        share(trials, what("peak memory"), "GB", pair("peak_bytes", scale=GB), SMALLER),
        sooner(trials, what("of a step, attempts"), "s", pair("attempt_seconds"), None),
        sooner(trials, what("of a step, learning"), "s", pair("learn_seconds"), None),
        beside(trials, what("generated in a step"), "tokens", pair("tokens")),
        *(
            beside(trials, what(words), unit, pair(figure))
            for figure, (words, unit) in SAMPLED.items()
        ),
    ]


SAMPLED = {
    "updates": ("updates in a step", ""),
    "tokens_p10": ("an attempt, 10 % are shorter than", "tokens"),
    "tokens_p50": ("an attempt, half are shorter than", "tokens"),
    "tokens_p90": ("an attempt, 90 % are shorter than", "tokens"),
    "at_limit": ("attempts that ran into the limit", "share"),
    "called": ("attempts with a call", "share"),
    "calls_mean": ("calls in an attempt", ""),
}
"""What tells whether both sides did the same work."""

PART = Part(name="step", measure=measure, lines=lines)
