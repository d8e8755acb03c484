"""Programs for the Python tool, plain and hostile, and many clients that call both at once."""

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle

from forethought.core.messages import ToolCall, ToolReply, ToolStatus
from forethought.tools.protocol import Tools
from forethought.tools.sandbox.outcome import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A benign program, and the reply to it: its status, and its text, or the last of it."""

    code: str
    shown: str
    status: ToolStatus = ToolStatus.OK

    def answered_by(self, reply: ToolReply) -> bool:
        """Whether a reply is the right one; before an error there may be more."""
        if self.status == ToolStatus.OK:
            return reply.status == self.status and reply.text == self.shown
        return reply.status == self.status and reply.text.endswith(self.shown)


PLAIN = {
    "print": Program(code="print(1 + 1)", shown="2"),
    "fractions": Program(
        code="from fractions import Fraction\nprint(Fraction(1, 3) + Fraction(1, 6))", shown="1/2"
    ),
    "loop": Program(code="print(sum(i * i for i in range(100_000)))", shown="333328333350000"),
    "error": Program(
        code="1 / 0",
        shown="ZeroDivisionError: division by zero",
        status=ToolStatus.MODEL_ERROR,
    ),
}
HEAVY = {
    "while True: pass": {Kind.TIMEOUT, Kind.CPU},
    "import time\ntime.sleep(1e6)": {Kind.TIMEOUT},
    "held = [0]\nwhile True: held += held": {Kind.MEMORY, Kind.TIMEOUT},
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass": {
        *(Kind.TIMEOUT, Kind.MEMORY, Kind.ERROR),
    },
    "import os\nwhile True: os.write(1, b'x' * 65536)": {Kind.OUTPUT, Kind.TIMEOUT},
}
"""Hostile programs that go on for as long as they may, each with the kinds it may end as."""
HOSTILE = {
    **HEAVY,
    "import os\nos.setsid() if os.fork() == 0 else None\nos.fork()\nos._exit(0)": {Kind.OK},
    "import ctypes\nctypes.string_at(0)": {Kind.CRASH},
    "import os\nos.kill(-1, 9)\nos.abort()": {Kind.CRASH, Kind.ERROR},
    "import os\nfor i in range(9999): open(f'{i}', 'w').close()": {
        *(Kind.ERROR, Kind.DISK, Kind.TIMEOUT),
    },
    "import os\nfor fd in range(3, 99):\n    try: os.write(fd, b'RRRR')\n"
    "    except OSError: pass": {Kind.OK},
}
CLIENTS = 32
"""Clients with benign calls under load: four for each place of two servers."""
HOSTILE_CLIENTS = 4 * CLIENTS
"""Clients that take turns with hostile ones: enough that one is free when the next is due."""
BENIGN_TO_ONE = 9
"""Benign calls to a hostile one: a tenth of all calls is hostile."""


@dataclass(slots=True, kw_only=True)
class Served:
    """Calls of benign programs so far, and the seconds that each counted one took.

    The seconds include waiting in line. A call with a wrong reply is never counted among them;
    `wrong` has all of those, by what came back.
    """

    calls: int = 0
    latencies: list[float] = field(default_factory=list[float])
    wrong: Counter[str] = field(default_factory=Counter[str])

    async def call(self, tool: Tools, program: Program, *, counted: bool) -> None:
        """Make one call more."""
        self.calls += 1
        began = time.perf_counter()
        reply = await call_tool(tool, program.code)
        seconds = time.perf_counter() - began
        if not program.answered_by(reply):
            self.wrong[f"{reply.status}: {reply.text[-60:]!r}"] += 1
        elif counted:
            self.latencies.append(seconds)


async def call_tool(tool: Tools, code: str) -> ToolReply:
    """The reply to one program."""
    arguments = json.dumps({"code": code})
    return await tool.call(ToolCall(id="1", name="python", arguments=arguments))


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Clients of one tool, and what they have seen so far.

    Benign calls that begin after `counted` (on the clock of `time.perf_counter`) count; after `end`
    nobody begins another. `served` and `hostile` know the calls of all time.
    """

    tool: Tools
    counted: float
    end: float
    served: Served = field(default_factory=Served)
    hostile: int = 0
    due: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    @property
    def seconds(self) -> float:
        """For how long calls were counted."""
        return self.end - self.counted

    async def benign_client(self) -> None:
        """One benign call after another, one of them counted at least."""
        while time.perf_counter() < self.counted:
            await self._benign_call(counted=False)
        await self._benign_call(counted=True)
        while time.perf_counter() < self.end:
            await self._benign_call(counted=True)

    async def hostile_client(self, programs: "cycle[str]") -> None:
        """The next of `programs` whenever one is due."""
        while await self.due.acquire() and time.perf_counter() < self.end:
            self.hostile += 1
            await call_tool(self.tool, next(programs))

    async def _benign_call(self, *, counted: bool) -> None:
        if (self.served.calls + 1) % BENIGN_TO_ONE == 0:
            self.due.release()
        await self.served.call(self.tool, PLAIN["print"], counted=counted)


async def crowded(tool: Tools, seconds: float, *, hostile: bool) -> Crowd:
    """Benign calls by `CLIENTS`, one after the other; with `hostile`, beside hostile ones.

    Other clients take turns with those of `HEAVY` and begin one for every `BENIGN_TO_ONE` benign
    calls that are begun, so that these never have fewer clients. Latencies are counted for
    so many seconds, once a fifth of them has passed: meanwhile hostile calls fill their places.
    """
    now = time.perf_counter()
    crowd = Crowd(tool=tool, counted=now + seconds / 5, end=now + seconds * 6 / 5)
    programs = cycle(HEAVY)
    async with asyncio.TaskGroup() as hostile_clients:
        for _ in range(HOSTILE_CLIENTS * hostile):
            hostile_clients.create_task(crowd.hostile_client(programs))
        await asyncio.gather(*(crowd.benign_client() for _ in range(CLIENTS)))
        for _ in range(HOSTILE_CLIENTS):
            crowd.due.release()  # who still waits for a turn may go
    return crowd
