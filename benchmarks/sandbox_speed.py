"""How fast the Python tool serves calls, what hostile ones do to others, and whether it leaks.

    python benchmarks/sandbox_speed.py                              # speed, standard library
    python benchmarks/sandbox_speed.py --python FOLDER/bin/python   # and with numpy and sympy
    python benchmarks/sandbox_speed.py --load 20                    # and beside hostile calls
    python benchmarks/sandbox_speed.py --soak 100000                # and for a long time

Each prints rows of one table. Latencies are those of a call as an agent sees it, in
milliseconds; processor time is that of everything: this process, the servers and the programs.
The soak checks that every call ends as it may, and counts what is left over afterwards.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from forethought.core.messages import ToolCall
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.settings import PythonSettings

PLAIN = {
    "print": "print(1 + 1)",
    "fractions": "from fractions import Fraction\nprint(Fraction(1, 3) + Fraction(1, 6))",
    "loop": "print(sum(i * i for i in range(100_000)))",
    "error": "1 / 0",
}
SCIENCE = {
    "numpy+sympy": (
        "import numpy, sympy\nx = sympy.Symbol('x')\n"
        "print(numpy.arange(9).sum(), sympy.expand((x + 1) ** 3))"
    ),
}
SPINS = "while True: pass"
HOSTILE = {
    SPINS: {Kind.TIMEOUT, Kind.CPU},
    "import time\ntime.sleep(1e6)": {Kind.TIMEOUT},
    "held = [0]\nwhile True: held += held": {Kind.MEMORY, Kind.TIMEOUT},
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass": {
        *(Kind.TIMEOUT, Kind.MEMORY, Kind.ERROR),
    },
    "import os\nwhile True: os.write(1, b'x' * 65536)": {Kind.OUTPUT, Kind.TIMEOUT},
    "import os\nos.setsid() if os.fork() == 0 else None\nos.fork()\nos._exit(0)": {Kind.OK},
    "import ctypes\nctypes.string_at(0)": {Kind.CRASH},
    "import os\nos.kill(-1, 9)\nos.abort()": {Kind.CRASH, Kind.ERROR},
    "import os\nfor i in range(9999): open(f'{i}', 'w').close()": {
        *(Kind.ERROR, Kind.DISK, Kind.TIMEOUT),
    },
    "import os\nfor fd in range(3, 99):\n    try: os.write(fd, b'RRRR')\n"
    "    except OSError: pass": {Kind.OK},
}
HEAD = f"{'what':34} {'calls/s':>8} {'p50 ms':>8} {'p95 ms':>8} {'CPU ms':>8}  notes"


def row(name: str, calls: int, seconds: float, latencies: list[float], cpu: float, note="") -> None:
    """Print one line of the table."""
    middle = statistics.median(latencies) * 1000
    late = statistics.quantiles(latencies, n=20)[-1] * 1000
    share = cpu / calls * 1000
    print(f"{name:34} {calls / seconds:8.0f} {middle:8.1f} {late:8.1f} {share:8.2f}  {note}")


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


async def timed_call(tool: PythonTool, code: str) -> float:
    """Seconds that one call took, waiting in line included."""
    began = time.perf_counter()
    arguments = json.dumps({"code": code})
    await tool.call(ToolCall(id="1", name="python", arguments=arguments))
    return time.perf_counter() - began


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
    settings: PythonSettings, programs: dict[str, str], calls: int, clients: int
) -> None:
    """One row for each program."""
    async with PythonTool(settings) as tool:
        for name, code in programs.items():
            await serve(tool, code, 20, clients)
            before = processor_seconds()
            seconds, latencies = await serve(tool, code, calls, clients)
            cost = processor_seconds() - before
            row(f"{name}, {clients} clients", calls, seconds, latencies, cost)


async def mixed(tool: PythonTool, seconds: float, share: float) -> list[float]:
    """Latencies of benign calls by eight clients, of whose calls a share is hostile."""
    dice, programs = random.Random(0), [*HOSTILE]
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < end:
            if dice.random() < share:
                await timed_call(tool, dice.choice(programs))
            else:
                latencies.append(await timed_call(tool, PLAIN["print"]))

    await asyncio.gather(*(client() for _ in range(8)))
    return latencies


async def load(settings: PythonSettings, seconds: float) -> None:
    """Benign calls alone, and beside hostile ones: a tenth of what eight clients ask for."""
    medians: list[float] = []
    async with PythonTool(settings) as tool:
        for name, share in (("benign, quiet", 0.0), ("benign, 10 % hostile", 0.1)):
            before = processor_seconds()
            latencies = await mixed(tool, seconds, share)
            cost = processor_seconds() - before
            row(name, len(latencies), seconds, latencies, cost)
            medians.append(statistics.median(latencies))
    ratio = medians[1] / medians[0]
    print(f"{'':34} median beside hostile calls: {ratio:.1f} times the quiet one")


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
        row("soak, benign part", calls, seconds, latencies, processor_seconds() - cpu)
    print(f"kinds: {dict(sorted(kinds.items()))}; servers replaced: {replaced}")
    print(f"left over: {', '.join(f'{n} {before[n]} -> {after[n]}' for n in before)}")
    print(f"wrong: {sum(wrong.values())} of {calls} {dict(wrong) or ''}")
    return sum(wrong.values())


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--tier", default="auto")
    parser.add_argument("--python", default="", help="an environment with numpy and sympy")
    parser.add_argument("--load", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--soak", type=int, default=0, metavar="CALLS")
    options = parser.parse_args()
    settings = PythonSettings(servers=options.servers, tier=options.tier)
    print(HEAD)
    if options.calls:
        asyncio.run(speed(settings, PLAIN, options.calls, options.clients))
        asyncio.run(speed(settings, {"print": PLAIN["print"]}, options.calls, 8))
    if options.python:
        found = {"python": options.python, "preload": ("numpy", "sympy")}
        science = settings.model_copy(update=found)
        programs = {"print, numpy+sympy preloaded": PLAIN["print"], **SCIENCE}
        asyncio.run(speed(science, programs, max(50, options.calls // 2), options.clients))
    quick = settings.model_copy(update={"wall_seconds": 1.0, "memory_mb": 256, "processes": 16})
    if options.load:
        asyncio.run(load(quick, options.load))
    if options.soak:
        raise SystemExit(1 if asyncio.run(soak(quick, options.soak)) else 0)


if __name__ == "__main__":
    main()
