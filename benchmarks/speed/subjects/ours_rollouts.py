"""Forethought's attempts alone, with the real tool, at one number of them in a step."""

import asyncio
import time

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from benchmarks.speed.subjects.ours import (
    TOOL,
    calls_of,
    engine_of,
    limits_of,
    problems_of,
    sampling_of,
    tokens_of,
)

from forethought.agents.groups import attempt_groups
from forethought.app.engine import Engine
from forethought.core.trajectory import Episode
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool


async def attempt(
    task: Task, engine: Engine, count: int, stage: str
) -> tuple[float, list[Episode]]:
    """`count` episodes, in groups, and how many seconds they took."""
    size = task["group"]
    problems = problems_of(task)
    offered = [problems[number % len(problems)] for number in range(count // size)]
    async with PythonTool(TOOL) as tool:
        agent = engine.agent(tool, BoxedGrader(), limits_of(task), sampling_of(task))
        began = time.perf_counter()
        groups = await attempt_groups(
            agent,
            offered,
            size=size,
            seed=task["seed"],
            stage=stage,
            flow=engine.compute.flow,
        )
        seconds = time.perf_counter() - began
    return seconds, [episode for group in groups for episode in group.episodes]


async def measured(task: Task, engine: Engine) -> Cases:
    """Seconds for the task's number of episodes, after a few that get everything warm."""
    await attempt(task, engine, task["warm"], "growth/warm")
    seconds, episodes = await attempt(task, engine, task["count"], "growth")
    tokens = [tokens_of(episode) for episode in episodes]
    figures = {
        "seconds": seconds,
        "tokens": float(sum(tokens)),
        **lengths(tokens, task["tokens"], [calls_of(one) for one in episodes]),
    }
    return {task["case"]: figures}


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Attempts at as many episodes as the task has."""
    with engine_of(task) as engine:
        return asyncio.run(measured(task, engine)), {"workers": engine.crew.size}


if __name__ == "__main__":
    answer(measure)
