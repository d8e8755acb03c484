"""Faults that other sandboxes had: grandchildren, floods, load, and a slow tool on the loop."""

import asyncio
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
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
    "printed, tell = os.pipe()\n"
    "def stay():\n"
    "    import ctypes\n"
    "    ctypes.CDLL(None).prctl(15, b'grandchild', 0, 0, 0)\n"
    "    print('started', flush=True)\n"
    "    os.write(tell, b'.')\n"
    "    time.sleep(300)\n"
)
FAMILIES = {
    "its parent ends at once": (
        "if not os.fork(): stay()\nos.read(printed, 1)",
        Kind.OK,
    ),
    "its parent never ends": ("if not os.fork(): stay()\nwhile True: pass", Kind.TIMEOUT),
    "it leaves its session": (
        "if not os.fork():\n    os.setsid()\n    stay()\nos.read(printed, 1)",
        Kind.OK,
    ),
    "it is one of two hundred": (
        "for _ in range(200):\n    try:\n        if not os.fork(): stay()\n"
        "    except OSError: break\nos.read(printed, 1)",
        Kind.OK,
    ),
    "it was started by a shell": (
        "subprocess.Popen(['sh', '-c', f'echo started; echo >&{tell}; exec sleep 300.0625'], "
        "pass_fds=[tell])\nos.read(printed, 1)",
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
    waits = []
    for _ in range(3):
        asked = time.monotonic()
        outcome = tier.run(CHILD + program)
        waits.append(time.monotonic() - asked)
        assert outcome.kind is kind
        assert outcome.out.startswith(b"started\n")
        assert outcome.seconds < _KILL_GRACE / 2
        assert becomes(lambda: not (named("grandchild") or told("300.0625")), seconds=1)
        if waits[-1] < tier.limit + 1.5:
            break  # once is enough where others keep the machine busy
    assert min(waits) < tier.limit + 1.5


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


FLOOD = """
import os
number = 0
while True:
    chunk = b"".join(b"%09d\\n" % each for each in range(number, number + 1000))
    number += 1000
    for fd in {}: os.write(fd, chunk)
"""
HALF = 32_768
"""Bytes of a stream that are kept at its beginning, and again at its end."""


def flood(begin, end):
    """What the flood writes to a stream from one byte to another."""
    first = begin // 10
    text = b"".join(b"%09d\n" % each for each in range(first, end // 10 + 1))
    return text[begin - 10 * first : end - 10 * first]


@pytest.mark.parametrize("where", ["(1,)", "(2,)", "(1, 2)"])
def test_endless_printing_is_stopped_and_both_its_ends_are_kept(tier, where):
    outcome = tier.run(FLOOD.format(where))
    assert outcome.kind in {Kind.OUTPUT, Kind.TIMEOUT}
    assert outcome.truncated
    streams = {1: (outcome.out, outcome.out_bytes), 2: (outcome.err, outcome.err_bytes)}
    for number, (kept, written) in streams.items():
        if str(number) in where:
            assert written > len(kept) == 2 * HALF
            assert kept == flood(0, HALF) + flood(written - HALF, written)
        else:
            assert (kept, written) == (b"", 0)


def most_held(process):
    """The most memory that a process held since this was last forgotten, in KB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("where", ["(1,)", "(2,)", "(1, 2)"])
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
    assert max(outcome.out_bytes, outcome.err_bytes) > 16 << 20
    assert max(grown.values()) < 4 << 10  # in KB


SLEEPS = "import time; begun = time.time(); time.sleep({}); print(begun, time.time())"
"""A program that says when it began and when it ended."""


def most_at_once(spans):
    """How many of these stretches of time, each a begin and an end, lie over one moment."""
    return max(sum(begun <= moment < ended for begun, ended in spans) for moment, _ in spans)


def covered(spans):
    """The time from the first begin to the last end."""
    return max(ended for _, ended in spans) - min(begun for begun, _ in spans)


def test_a_program_s_time_begins_when_it_does_and_its_wait_is_told_apart(host):
    async def run():
        places = {"servers": 1, "calls_per_server": 8, "long_calls_per_server": 0}
        settings = SMALL.model_copy(update={**places, "wall_seconds": 3.0})
        async with PythonTool(settings) as tool:

            async def job():
                asked = time.monotonic()
                outcome = await tool.opened.backend.run(SLEEPS.format(1))
                return outcome, time.monotonic() - asked

            jobs = await asyncio.gather(*(job() for _ in range(64)))
            return jobs, tool.usage

    jobs, usage = asyncio.run(run())
    assert usage.ended == {Kind.OK: 64}
    assert usage.replaced == {}
    for outcome, waited in jobs:
        assert 1 <= outcome.seconds < 3
        assert outcome.queued + outcome.seconds <= waited
    assert usage.queued == pytest.approx(sum(outcome.queued for outcome, _ in jobs))
    assert sum(outcome.queued > 3 for outcome, _ in jobs) > 16  # none of them timed out
    spans = [tuple(map(float, outcome.out.split())) for outcome, _ in jobs]
    assert most_at_once(spans) <= 8
    # Eight at a time took an eighth of the time that they took together, and some to spare.
    assert covered(spans) < 2 * sum(outcome.seconds for outcome, _ in jobs) / 8


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


@contextmanager
def watched():
    """A heartbeat on this loop, and how often a thread beside it came round between two beats.

    The thread is as starved as the loop where others keep the machine busy, so this tells what
    blocked the loop, not what the machine did. One round takes 0.02 s at least.
    """
    rounds, gaps, over = 0, [], threading.Event()

    def go_round():
        nonlocal rounds
        while not over.wait(0.02):
            rounds += 1

    async def beat():
        while True:
            before = rounds
            await asyncio.sleep(0.02)
            gaps.append(rounds - before)

    pulse = asyncio.create_task(beat())
    beside = threading.Thread(target=go_round)
    beside.start()
    try:
        yield gaps
    finally:
        over.set()
        beside.join()
        pulse.cancel()


HALF_A_SECOND = 25
"""Rounds of the thread beside the loop."""


def test_the_watch_over_the_loop_sees_what_blocks_it():
    async def run():
        with watched() as gaps:
            await asyncio.sleep(0.1)
            time.sleep(1)
            await asyncio.sleep(0.1)
            return gaps

    assert max(asyncio.run(run())) > HALF_A_SECOND


def test_slow_programs_of_many_attempts_run_beside_each_other_and_the_loop_goes_on(host):
    async def run():
        settings = SMALL.model_copy(update={"servers": 2, "calls_per_server": 4})
        settings = settings.model_copy(update={"wall_seconds": 60.0})
        async with PythonTool(settings) as tool:
            clocked = Clocked(tool)
            slow = json.dumps({"code": SLEEPS.format(2)})
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
            with watched() as gaps:
                episodes = await asyncio.gather(*(agent.attempt(PROBLEM, KEY) for agent in agents))
            return episodes, clocked.most, gaps

    episodes, most, gaps = asyncio.run(run())
    assert most == 8
    spans, seconds = [], 0.0
    for episode in episodes:
        replies = only(episode).turns[0].replies
        assert [reply.call_id for reply in replies] == ["0", "1", "2"]
        assert "at most 2 calls a turn" in replies[2].text
        spans += [tuple(map(float, reply.text.split())) for reply in replies[:2]]
        seconds += sum(reply.seconds for reply in replies[:2])
    assert most_at_once(spans) == 8
    assert covered(spans) < 3 / 8 * seconds  # one after the other they take all of it
    assert max(gaps) < HALF_A_SECOND
