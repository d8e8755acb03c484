"""How many calls a second the Python tool serves, and what one call costs in processor time.

    python benchmarks/sandbox_speed.py --calls 1000 --at-once 8

Processor time is that of everything: this process, the servers and the programs.
"""

import argparse
import asyncio
import json
import resource
import time

from forethought.core.messages import ToolCall, ToolStatus
from forethought.tools.python_tool import PythonTool
from forethought.tools.settings import PythonSettings

PROGRAMS = {
    "print": "print(1 + 1)",
    "fractions": "from fractions import Fraction\nprint(Fraction(1, 3) + Fraction(1, 6))",
    "loop": "print(sum(i * i for i in range(100_000)))",
    "error": "1 / 0",
}


def processor_seconds() -> float:
    """Time that this process and its ended children have taken."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def serve(code: str, calls: int, at_once: int, settings: PythonSettings) -> float:
    """Seconds that `calls` calls took, `at_once` of them at a time."""
    arguments = json.dumps({"code": code})
    gate = asyncio.Semaphore(at_once)

    async with PythonTool(settings) as tool:

        async def one(number: int) -> ToolStatus:
            async with gate:
                call = ToolCall(id=str(number), name="python", arguments=arguments)
                return (await tool.call(call)).status

        started = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(calls)))
        return time.perf_counter() - started


def main() -> None:
    """Measure every program and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--servers", type=int, default=2)
    options = parser.parse_args()
    settings = PythonSettings(servers=options.servers)
    idle = processor_seconds()
    asyncio.run(serve("1", 1, 1, settings))
    opening = processor_seconds() - idle
    print(f"{'program':10} {'calls/s':>8} {'CPU ms a call':>14}")
    for name, code in PROGRAMS.items():
        before = processor_seconds()
        seconds = asyncio.run(serve(code, options.calls, options.at_once, settings))
        cost = (processor_seconds() - before - opening) / options.calls
        print(f"{name:10} {options.calls / seconds:8.0f} {cost * 1000:14.2f}")


if __name__ == "__main__":
    main()
