"""Forethought's sampler: many prompts at once, each through a seat of its own."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from benchmarks.speed.subjects.ours import engine_of

from forethought.policy.local.sampler import LocalSampler
from forethought.policy.protocol import SamplingSettings


async def sample_all(
    sampler: LocalSampler, prompts: Sequence[Sequence[int]], stop: Sequence[int], new: int
) -> list[int]:
    """How many tokens each prompt was continued with."""
    settings = SamplingSettings(temperature=1.0, top_p=1.0, max_tokens=new)
    seats = [sampler.sit() for _ in prompts]

    async def one(number: int) -> int:
        sampled = await seats[number].sample(prompts[number], stop, settings, number)
        seats[number].leave()
        return len(sampled.ids)

    return await asyncio.gather(*map(one, range(len(prompts))))


async def timed(
    sampler: LocalSampler, case: Mapping[str, Any], new: int
) -> tuple[float, list[int]]:
    """Seconds that a case took with at most `new` tokens a row, and the tokens of each."""
    began = time.perf_counter()
    counts = await sample_all(sampler, case["prompts"], case["stop"], new)
    return time.perf_counter() - began, counts


async def measured(task: Task, sampler: LocalSampler) -> Cases:
    """Tokens per second in every case, all in one event loop: rounds wind up after the last row."""
    await sample_all(sampler, task["warm_prompts"], [], 8)
    cases: dict[str, dict[str, float]] = {}
    for case in task["cases"]:
        seconds, counts = await timed(sampler, case, case["new"])
        cases[case["name"]] = {
            "seconds": seconds,
            "tokens": float(sum(counts)),
            **lengths(counts, case["new"]),
        }
    return cases


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Tokens per second in every case of the task."""
    with engine_of(task) as engine:
        cases = asyncio.run(measured(task, engine.sampler))
        return cases, {"workers": engine.crew.size}


if __name__ == "__main__":
    answer(measure)
