"""How fast the Python tool serves calls, what hostile ones do to others, and whether it leaks.

    python -m benchmarks.sandbox_speed                              # speed, standard library
    python -m benchmarks.sandbox_speed --python FOLDER/bin/python   # and with numpy and sympy
    python -m benchmarks.sandbox_speed --load 20                    # and beside hostile calls
    python -m benchmarks.sandbox_speed --soak 100000                # and for a long time

Each prints rows of one table. Latencies are those of a call as an agent sees it, in milliseconds,
waiting in line included, and of those alone whose reply was right; processor time is that of
everything: this process, the servers and the programs. Under load as many clients make benign calls
as without it, more of them than have a place at once, while clients of their own keep hostile calls
a tenth of all. The soak checks that every call ends as it may, and counts what is left over
afterwards.
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

from benchmarks.sandbox_load import CLIENTS, HOSTILE, PLAIN, Program, Served, crowded

from forethought.tools.protocol import Tools
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.settings import PythonSettings

SCIENCE = {
    "numpy+sympy": Program(
        code="import numpy, sympy\nx = sympy.Symbol('x')\n"
        "print(numpy.arange(9).sum(), sympy.expand((x + 1) ** 3))",
        shown="36 x**3 + 3*x**2 + 3*x + 1",
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


def figures_of(name: str, served: Served, seconds: float, cpu: float) -> Figures:
    """What the counted calls of the case called `name` came to, and how many replies were wrong.

    `cpu` is that of all its calls. Stops where fewer than two calls can be counted.
    """
    right, wrong = len(served.latencies), served.wrong.total()
    if right < 2:
        raise SystemExit(f"{name}: {wrong} of {served.calls} replies were wrong: {served.wrong}")
    cost = cpu * right / served.calls
    told = figures(right, seconds, served.latencies, cost)
    return {**told, "benign_calls": served.calls, "wrong_replies": wrong}


def show(found: Mapping[str, Figures]) -> None:
    """Print a line of the table for each."""
    for name, each in found.items():
        notes = [f"{each['hostile_share']:.0%} of calls hostile"] if "hostile_share" in each else []
        if wrong := each.get("wrong_replies"):
            notes.append(f"{wrong:.0f} wrong replies")
        cells = f"{each['calls_per_s']:8.0f} {each['p50_ms']:8.1f} {each['p95_ms']:8.1f}"
        print(f"{name:{WIDTH}} {cells} {each['cpu_ms']:8.2f}  {', '.join(notes)}", flush=True)


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


async def serve(
    served: Served, tool: Tools, program: Program, calls: int, clients: int, *, counted: bool
) -> float:
    """All calls by so many clients, each waiting for one before the next: the seconds they took."""
    numbers = iter(range(calls))

    async def client() -> None:
        for _ in numbers:
            await served.call(tool, program, counted=counted)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began


async def speed(
    settings: PythonSettings, programs: Mapping[str, Program], calls: int, clients: int
) -> dict[str, Figures]:
    """What each program's calls came to."""
    found: dict[str, Figures] = {}
    async with PythonTool(settings) as tool:
        for program_name, program in programs.items():
            name, served = f"{program_name}, {clients} clients", Served()
            before = processor_seconds()
            await serve(served, tool, program, 20, clients, counted=False)
            seconds = await serve(served, tool, program, calls, clients, counted=True)
            found[name] = figures_of(name, served, seconds, processor_seconds() - before)
    return found


async def load(settings: PythonSettings, seconds: float) -> dict[str, Figures]:
    """Benign calls alone, and then the same beside hostile ones."""
    found: dict[str, Figures] = {}
    async with PythonTool(settings) as tool:
        for name, hostile in ((QUIET, False), (LOADED, True)):
            before = processor_seconds()
            crowd = await crowded(tool, seconds, hostile=hostile)
            cpu = processor_seconds() - before
            found[name] = figures_of(name, crowd.served, crowd.seconds, cpu)
            found[name]["hostile_share"] = crowd.hostile / (crowd.served.calls + crowd.hostile)
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
