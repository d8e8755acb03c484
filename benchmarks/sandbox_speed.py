"""How fast the Python tool serves calls, what hostile ones do to others, and whether it leaks.

    python -m benchmarks.sandbox_speed                              # speed, standard library
    python -m benchmarks.sandbox_speed --python FOLDER/bin/python   # and with numpy and sympy
    python -m benchmarks.sandbox_speed --load 20                    # and beside hostile calls
    python -m benchmarks.sandbox_speed --soak 100000                # and for a long time

Each prints rows of one table. Latencies are those of a call as an agent sees it, in
milliseconds, waiting in line included; processor time is that of everything: this process, the
servers and the programs. Under load as many clients make benign calls as without it, more of them
than have a place at once, while clients of their own keep hostile calls a tenth of all. The soak
checks that every call ends as it may, and counts what is left over afterwards.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.sandbox_load import CLIENTS, HOSTILE, PLAIN, crowded, timed_call

from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.settings import PythonSettings

SCIENCE = {
    "numpy+sympy": (
        "import numpy, sympy\nx = sympy.Symbol('x')\n"
        "print(numpy.arange(9).sum(), sympy.expand((x + 1) ** 3))"
    ),
}
QUIET = f"benign calls of {CLIENTS} clients, quiet"
LOADED = f"benign calls of {CLIENTS} clients, a tenth of all calls hostile"
USUAL = {"wall_seconds": 2.0, "cpu_seconds": 2, "memory_mb": 256}
"""The limits of the quickstart's recipe."""
WIDTH = 62
HEAD = f"{'what':{WIDTH}} {'calls/s':>8} {'p50 ms':>8} {'p95 ms':>8} {'CPU ms':>8}  notes"


Figures = dict[str, float]


def figures(calls: int, seconds: float, latencies: list[float], cpu: float) -> Figures:
    """What calls came to; `seconds` passed meanwhile, of `cpu` on processors."""
    return {
        "calls_per_s": calls / seconds,
        "p50_ms": statistics.median(latencies) * 1000,
        "p95_ms": statistics.quantiles(latencies, n=20)[-1] * 1000,
        "cpu_ms": cpu / calls * 1000,
    }


def show(found: Mapping[str, Figures]) -> None:
    """Print a line of the table for each."""
    for name, each in found.items():
        share = each.get("hostile_share")
        note = "" if share is None else f"{share:.0%} of calls hostile"
        cells = f"{each['calls_per_s']:8.0f} {each['p50_ms']:8.1f} {each['p95_ms']:8.1f}"
        print(f"{name:{WIDTH}} {cells} {each['cpu_ms']:8.2f}  {note}", flush=True)


def processor_seconds() -> float:
    """Time that this process, those below it and their ended children have taken."""
    ticks = 0
    for process in (os.getpid(), *below(os.getpid())):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def serve(tool: PythonTool, code: str, calls: int, clients: int) -> tuple[float, list[float]]:
    """All calls by so many clients, each waiting for one before the next: seconds, latencies."""
    numbers = iter(range(calls))
    latencies: list[float] = []

    async def client() -> None:
        latencies.extend([await timed_call(tool, code) for _ in numbers])

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, latencies


async def speed(
    settings: PythonSettings, programs: Mapping[str, str], calls: int, clients: int
) -> dict[str, Figures]:
    """What each program's calls came to."""
    found: dict[str, Figures] = {}
    async with PythonTool(settings) as tool:
        for name, code in programs.items():
            await serve(tool, code, 20, clients)
            before = processor_seconds()
            seconds, latencies = await serve(tool, code, calls, clients)
            cost = processor_seconds() - before
            found[f"{name}, {clients} clients"] = figures(calls, seconds, latencies, cost)
    return found


async def load(settings: PythonSettings, seconds: float) -> dict[str, Figures]:
    """Benign calls alone, and the same beside hostile ones."""
    found: dict[str, Figures] = {}
    async with PythonTool(settings) as tool:
        for name, hostile in ((QUIET, False), (LOADED, True)):
            before = processor_seconds()
            crowd = await crowded(tool, seconds, hostile=hostile)
            counted = len(crowd.latencies)
            cost = (processor_seconds() - before) * counted / crowd.benign
            found[name] = figures(counted, crowd.seconds, crowd.latencies, cost)
            found[name]["hostile_share"] = crowd.hostile / (crowd.benign + crowd.hostile)
    return found


def below(root: int, depth: int = 99) -> list[int]:
    """All processes below one, down to a depth."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, level = [], [root]
    for _ in range(depth):
        level = [process for process, parent in parents.items() if parent in level]
        found += level
    return found


def left_over() -> dict[str, int]:
    """What must not grow: processes, descriptors, memory in KB, mounts, folders of calls.

    Descriptors and memory are those of the tool, its servers and their zygotes: a program waiting
    for its turn holds for a while what its zygote held when it made it.
    """
    descriptors = memory = 0
    for process in (os.getpid(), *below(os.getpid(), depth=2)):
        descriptors += len(list(Path(f"/proc/{process}/fd").iterdir()))
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        memory += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    folders = [*Path("/tmp").glob("forethought-*/*"), *Path("/dev/shm").glob("forethought-*/*")]
    return {
        "processes": len(below(os.getpid())),
        "descriptors": descriptors,
        "memory KB": memory,
        "mounts": Path("/proc/self/mounts").read_text().count("\n"),
        "folders": len(folders),
    }


def work(calls: int, dice: random.Random) -> Iterator[tuple[str, set[Kind], bytes | None]]:
    """Programs, the kinds they may end as and what they must print: a tenth is hostile."""
    programs = [*HOSTILE]
    for number in range(calls):
        if dice.random() < 0.1:
            code = dice.choice(programs)
            yield code, HOSTILE[code], None
        else:
            yield f"print({number} * 2)", {Kind.OK}, b"%d\n" % (number * 2)


async def soak(settings: PythonSettings, calls: int) -> int:
    """Many calls; prints wrong ends and leaks, and returns how many calls ended wrongly."""
    wrong, kinds, latencies = Counter[str](), Counter[str](), list[float]()
    async with PythonTool(settings) as tool:
        backend = tool.opened.backend
        await asyncio.gather(*(backend.run("1") for _ in range(200)))
        await asyncio.sleep(1)
        before = left_over()
        asked = iter(work(calls, random.Random(0)))

        async def client() -> None:
            for code, allowed, out in asked:
                try:
                    outcome = await backend.run(code)
                except Exception as error:  # noqa: BLE001 (counted, whatever it is)
                    wrong[f"{code[:30]!r}: {error}"] += 1
                    continue
                kinds[outcome.kind] += 1
                if outcome.kind not in allowed or out not in (None, outcome.out):
                    wrong[f"{code[:30]!r}: {outcome.kind}"] += 1
                elif out is not None:
                    latencies.append(outcome.seconds + outcome.queued)

        began, cpu = time.perf_counter(), processor_seconds()
        await asyncio.gather(*(client() for _ in range(settings.servers * 4)))
        seconds = time.perf_counter() - began
        await asyncio.sleep(2)
        after = left_over()
        replaced = dict(backend.replaced)
        cost = processor_seconds() - cpu
        show({"soak, latencies of benign calls": figures(calls, seconds, latencies, cost)})
    print(f"kinds: {dict(sorted(kinds.items()))}; servers replaced: {replaced}")
    print(f"left over: {', '.join(f'{n} {before[n]} -> {after[n]}' for n in before)}")
    print(f"wrong: {sum(wrong.values())} of {calls} {dict(wrong) or ''}")
    return sum(wrong.values())


def main(arguments: list[str] | None = None) -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--python", default="", help="an environment with numpy and sympy")
    parser.add_argument("--load", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--soak", type=int, default=0, metavar="CALLS")
    options = parser.parse_args(arguments)
    settings = PythonSettings(servers=options.servers, tier=options.tier)
    print(HEAD)
    if options.calls:
        show(asyncio.run(speed(settings, PLAIN, options.calls, options.clients)))
        show(asyncio.run(speed(settings, {"print": PLAIN["print"]}, options.calls, 8)))
    if options.python:
        found = {"python": options.python, "preload": ("numpy", "sympy")}
        science = settings.model_copy(update=found)
        programs = {"print, numpy+sympy preloaded": PLAIN["print"], **SCIENCE}
        show(asyncio.run(speed(science, programs, max(50, options.calls // 2), options.clients)))
    if options.load:
        loaded = asyncio.run(load(settings.model_copy(update=USUAL), options.load))
        show(loaded)
        ratio = loaded[LOADED]["p50_ms"] / loaded[QUIET]["p50_ms"]
        print(f"median beside hostile calls: {ratio:.1f} times the quiet one (goal: at most 4)")
    quick = settings.model_copy(update={"wall_seconds": 1.0, "memory_mb": 256, "processes": 16})
    if options.soak:
        raise SystemExit(1 if asyncio.run(soak(quick, options.soak)) else 0)


if __name__ == "__main__":
    main()
