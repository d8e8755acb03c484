"""Forethought's sampler without reading prompts: one token a row taken from many."""

import asyncio

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.ours import engine_of
from benchmarks.speed.subjects.ours_sampling import sample_all, timed

from forethought.app.engine import Engine


async def measured(task: Task, engine: Engine) -> Cases:
    """Tokens per second beyond the first token, and the floating-point work that they take.

    The time for one token a row is that of reading the prompts; it is taken off. A token takes
    two operations a parameter, attention not counted (its embedding serves as output matrix).
    """
    await sample_all(engine.sampler, task["warm_prompts"], [], 8)
    cases: dict[str, dict[str, float]] = {}
    for case in task["cases"]:
        first, ones = await timed(engine.sampler, case, 1)
        whole, counts = await timed(engine.sampler, case, case["new"])
        speed = (sum(counts) - sum(ones)) / (whole - first)
        cases[case["name"]] = {
            "tokens_per_s": speed,
            "gflops": 2 * engine.model.parameters * speed / 1e9,
            "first_seconds": first,
        }
    return cases


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Decoding in every case of the task."""
    with engine_of(task) as engine:
        cases = asyncio.run(measured(task, engine))
        return cases, {"workers": engine.crew.size, "parameters": engine.model.parameters}


if __name__ == "__main__":
    answer(measure)
