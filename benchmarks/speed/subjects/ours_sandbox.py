"""Forethought's Python tool and its latencies: `benchmarks.sandbox_speed` as a subject."""

import asyncio

from benchmarks.sandbox_load import PLAIN
from benchmarks.sandbox_speed import USUAL, load, speed
from benchmarks.speed.subjects.answer import Cases, Task, answer

from forethought.tools.python_tool import PythonTool
from forethought.tools.settings import PythonSettings


async def measured(task: Task, settings: PythonSettings) -> Cases:
    """What calls came to: of a few clients with nothing beside them, then of a crowd."""
    found: dict[str, dict[str, float]] = {}
    for name, clients in task["programs"]:
        found |= await speed(settings, {name: PLAIN[name]}, task["calls"], clients)
    usual = settings.model_copy(update=USUAL)
    return found | await load(usual, task["load_seconds"])


async def tier_of(settings: PythonSettings) -> str:
    """What keeps programs apart here."""
    async with PythonTool(settings) as tool:
        return tool.opened.tier


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Latencies and calls a second in every case, with a server for each core."""
    settings = PythonSettings(servers=task["threads"])
    cases = asyncio.run(measured(task, settings))
    return cases, {"sandbox": asyncio.run(tier_of(settings))}


if __name__ == "__main__":
    answer(measure)
