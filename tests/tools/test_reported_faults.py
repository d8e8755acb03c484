"""Faults that other sandboxes had: grandchildren, floods, load, and a slow tool on the loop."""

import asyncio
import json
import os
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from forethought.agents.tool_agent import AgentSettings, ToolAgent
from forethought.core.messages import ToolReply, ToolSpec
from forethought.tools.python_tool import PYTHON, PythonTool
from forethought.tools.sandbox.inside.serving import _KILL_GRACE
from forethought.tools.sandbox.outcome import Kind
from scripted import KEY, PROBLEM, ExactGrader, ScriptedPolicy, only, says
from scripted import call as scripted_call
from tools.conftest import SMALL
from tools.test_supervision import (
    becomes,
    below,
    named,
    open_descriptors,
    parents,
    supervisors,
)

# A child that gives itself a name and keeps the output open for as long as it lives.
CHILD = (
    "import os, subprocess, sys, time\n"
    "def stay():\n"
    "    import ctypes\n"
    "    ctypes.CDLL(None).prctl(15, b'grandchild', 0, 0, 0)\n"
    "    print('started', flush=True)\n"
    "    time.sleep(300)\n"
)
FAMILIES = {
    "its parent ends at once": (
        "if not os.fork(): stay()\ntime.sleep(0.1)",
        Kind.OK,
    ),
    "its parent never ends": ("if not os.fork(): stay()\nwhile True: pass", Kind.TIMEOUT),
    "it leaves its session": (
        "if not os.fork():\n    os.setsid()\n    stay()\ntime.sleep(0.1)",
        Kind.OK,
    ),
    "it is one of two hundred": (
        "for _ in range(200):\n    try:\n        if not os.fork(): stay()\n"
        "    except OSError: break\ntime.sleep(0.1)",
        Kind.OK,
    ),
    "it was started by a shell": (
        "subprocess.Popen(['sh', '-c', 'echo started; exec sleep 300.0625'])\ntime.sleep(0.1)",
        Kind.OK,
    ),
}


def told(word):
    """Processes that have this word on their command line."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if word.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_grandchild_neither_holds_up_the_reply_nor_survives_it(tier, name):
    if tier.name == "landlock":
        pytest.skip("programs of this tier start no processes")
    program, kind = FAMILIES[name]
    outcome = tier.run(CHILD + program)
    assert outcome.kind is kind
    assert outcome.out.startswith(b"started\n")
    assert outcome.seconds < _KILL_GRACE / 2  # a program of this tier has one second
    assert becomes(lambda: not (named("grandchild") or told("300.0625")), seconds=1)


def test_a_hundred_families_leave_no_process_and_no_descriptor(tier):
    if tier.name == "landlock":
        pytest.skip("programs of this tier start no processes")

    def counts():
        # Not those of programs: they hold for a while what their server held when it made them.
        servers = supervisors()
        zygotes = [process for process, parent in parents().items() if parent in servers]
        lasting = (os.getpid(), *servers, *zygotes)
        return len(below(os.getpid())), [open_descriptors(process) for process in lasting]

    program = "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(300)"

    def settled():
        """The counts once two looks agree: a fork server prepares its next programs at leisure."""
        seen = [counts()]
        while len(seen) < 3 or seen[-1] != seen[-2] or seen[-2] != seen[-3]:
            time.sleep(0.1)
            seen.append(counts())
        return seen[-1]

    for _ in range(5):
        tier.run(program)
    before = settled()
    for _ in range(100):
        tier.run(program)
    assert settled() == before


FLOOD = "import os\nwhile True:\n    for fd in {}: os.write(fd, b'head' + b'x' * 9996)"


@pytest.mark.parametrize("where", ["(1,)", "(2,)", "(1, 2)"])
def test_endless_printing_is_stopped_and_both_its_ends_are_kept(tier, where):
    outcome = tier.run(FLOOD.format(where))
    assert outcome.kind in {Kind.OUTPUT, Kind.TIMEOUT}
    assert outcome.truncated
    for kept in (outcome.out, outcome.err):
        assert len(kept) <= 65_536
    assert (outcome.out or outcome.err).startswith(b"headxxx")


def most_held(process):
    """The most memory that a process held since this was last forgotten, in KB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("where", ["(1,)", "(1, 2)"])
def test_endless_printing_takes_no_memory_of_the_trainer_or_of_its_server(where):
    async def run():
        others = {*supervisors()}
        settings = SMALL.model_copy(update={"servers": 1, "wall_seconds": 60.0})
        async with PythonTool(settings) as tool:
            (supervisor,) = {*supervisors()} - others
            holders = (os.getpid(), supervisor)
            for process in holders:
                Path(f"/proc/{process}/clear_refs").write_text("5")  # forgets the most it held
            before = {process: most_held(process) for process in holders}
            outcome = await tool.opened.backend.run(FLOOD.format(where))
            return outcome, {process: most_held(process) - before[process] for process in before}

    outcome, grown = asyncio.run(run())
    assert outcome.kind is Kind.OUTPUT
    assert outcome.out_bytes > 16 << 20
    assert max(grown.values()) < 4 << 10  # in KB


def test_a_program_s_time_begins_when_it_does_and_its_wait_is_told_apart(host):
    async def run():
        places = {"servers": 1, "calls_per_server": 8, "long_calls_per_server": 0}
        settings = SMALL.model_copy(update=places)
        async with PythonTool(settings) as tool:
            job = "import time\ntime.sleep(0.5)\nprint('done')"
            return await asyncio.gather(*(tool.opened.backend.run(job) for _ in range(64)))

    outcomes = asyncio.run(run())
    assert {(outcome.kind, outcome.out) for outcome in outcomes} == {(Kind.OK, b"done\n")}
    assert all(outcome.seconds < SMALL.wall_seconds for outcome in outcomes)
    assert sum(outcome.queued > SMALL.wall_seconds for outcome in outcomes) > 16


class Clocked:
    """A tool whose calls take a while in the sandbox, and a heartbeat beside it."""

    specs: tuple[ToolSpec, ...] = (PYTHON,)

    def __init__(self, tool):
        self.tool = tool
        self.open = self.most = 0

    async def call(self, call) -> ToolReply:
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            return await self.tool.call(call)
        finally:
            self.open -= 1


def test_slow_programs_of_many_attempts_run_beside_each_other_and_the_loop_goes_on(host):
    beats = []

    async def beat():
        while True:
            beats.append(time.time())  # the clock that programs read, too
            await asyncio.sleep(0.02)

    async def run():
        settings = SMALL.model_copy(update={"servers": 2, "calls_per_server": 4})
        settings = settings.model_copy(update={"wall_seconds": 60.0})
        async with PythonTool(settings) as tool:
            clocked, pulse = Clocked(tool), asyncio.create_task(beat())
            program = "import time; begun = time.time(); time.sleep(2); print(begun, time.time())"
            slow = json.dumps({"code": program})
            script = [says("", *(scripted_call(slow, id=str(n)) for n in range(3))), says("42")]
            agents = [
                ToolAgent(
                    policy=ScriptedPolicy(script),
                    tools=clocked,
                    grader=ExactGrader(),
                    limits=AgentSettings(calls_per_turn=2),
                )
                for _ in range(4)
            ]
            episodes = await asyncio.gather(*(agent.attempt(PROBLEM, KEY) for agent in agents))
            pulse.cancel()
            beats.append(time.time())
            return episodes, clocked.most

    episodes, most = asyncio.run(run())
    assert most == 8
    spans = []
    for episode in episodes:
        replies = only(episode).turns[0].replies
        spans += [tuple(map(float, reply.text.split())) for reply in replies[:2]]
        assert "at most 2 calls a turn" in replies[2].text
    first_end = min(ended for _, ended in spans)
    last_begin = max(begun for begun, _ in spans)
    assert last_begin < first_end  # at some moment all eight were running
    # The loop went on meanwhile: it was not held up for long, nor for most of the time.
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert max(gaps) < 2
    assert sum(gap for gap in gaps if gap > 0.25) < sum(gaps) / 2
