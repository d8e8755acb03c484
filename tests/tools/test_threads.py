"""A tool whose calls block holds up neither other attempts nor the loop."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import pytest

from forethought.agents.groups import Waves, attempt_groups
from forethought.core.errors import RecipeError, SandboxError
from forethought.core.messages import ToolReply
from forethought.tools.threads import InThreads
from scripted import PROBLEM, PYTHON, ScriptedPolicy, call, only, says, tool_agent

GUARD = 60
"""Seconds after which a call that should have gone on gives up."""


@dataclass
class Blocking:
    """Does with the arguments of a call what a function says, and counts who is inside."""

    work: object
    specs: tuple = (PYTHON,)
    begun: list = field(default_factory=list)
    inside: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, call):
        with self.lock:
            self.begun.append(call.id)
            self.inside += 1
            self.most = max(self.most, self.inside)
        try:
            text = self.work(call.arguments)
        finally:
            with self.lock:
                self.inside -= 1
        return ToolReply(call_id=call.id, name=call.name, text=str(text))


class Pulse:
    """A task beside the others that counts how often the loop came to it."""

    def __init__(self):
        self.beats = 0

    async def beat(self):
        while True:
            self.beats += 1
            await asyncio.sleep(0.001)

    def wait(self):
        """Block this thread until the loop has turned a while longer."""
        goal, end = self.beats + 50, time.monotonic() + GUARD
        while self.beats < goal:
            assert time.monotonic() < end, "the loop stands still"
            time.sleep(0.01)


def attempts(agent, size):
    """A group of attempts by an agent, all at once."""
    flow = Waves(size)
    return attempt_groups(agent, [PROBLEM], size=size, seed=0, stage="rl/0", flow=flow)


def test_calls_of_eight_attempts_block_beside_each_other_and_the_loop_goes_on():
    together, pulse = threading.Barrier(8), Pulse()

    def work(arguments):
        together.wait(GUARD)  # opens once all eight are inside
        pulse.wait()
        return arguments

    async def run():
        beating = asyncio.create_task(pulse.beat())
        tools = InThreads(Blocking(work), at_once=8)
        (group,) = await attempts(tool_agent([says("", call()), says("42")], tools), 8)
        beating.cancel()
        return group

    group = asyncio.run(run())
    assert [one.right for one in group.episodes] == [True] * 8


def test_no_more_calls_run_at_once_than_are_allowed():
    three = threading.Barrier(3)
    blocking = Blocking(lambda arguments: three.wait(GUARD))  # nine calls, three at a time
    agent = tool_agent([says("", call()), says("42")], InThreads(blocking, at_once=3))
    (group,) = asyncio.run(attempts(agent, 9))
    assert len(group.measured) == 9
    assert blocking.most == 3


def test_replies_of_a_turn_are_in_the_order_of_its_calls_whichever_ends_first():
    ended = [threading.Event() for _ in range(4)]
    ended[3].set()

    def work(arguments):
        place = int(arguments)
        if place < 3:
            assert ended[place + 1].wait(GUARD)  # the last begins to end, the first ends last
        ended[place].set()
        return place

    blocking = Blocking(work)
    calls = [call(str(place), id=f"call_{place}") for place in range(4)]
    agent = tool_agent([says("", *calls), says("42")], InThreads(blocking, at_once=4))
    (group,) = asyncio.run(attempts(agent, 1))
    replies = only(group.episodes[0]).turns[0].replies
    assert [(reply.call_id, reply.text) for reply in replies] == [
        (f"call_{place}", str(place)) for place in range(4)
    ]
    one_by_one = Blocking(lambda arguments: arguments)
    agent = tool_agent([says("", *calls), says("42")], InThreads(one_by_one, at_once=1))
    asyncio.run(attempts(agent, 1))
    assert one_by_one.begun == [f"call_{place}" for place in range(4)]


@pytest.mark.parametrize("error", [KeyError("x"), SandboxError("gone"), StopIteration("x")])
def test_what_a_call_raises_rises_in_its_attempt_alone_with_the_place_where_it_did(error):
    def work(arguments):
        if arguments == "breaks":
            raise error
        return arguments

    def script(key):
        return [says("", call("breaks" if key.rollout == 2 else "fine")), says("42")]

    agent = tool_agent(ScriptedPolicy(script), InThreads(Blocking(work), at_once=2))
    (group,) = asyncio.run(attempts(agent, 4))
    assert [one.measured for one in group.episodes] == [True, True, False, True]
    trace = only(group.episodes[2]).error
    assert "raise error" in trace
    assert __file__ in trace
    named = "gone" if isinstance(error, SandboxError) else f"tool python: {type(error).__name__}"
    assert named in group.episodes[2].verdict.why


def test_a_fault_of_a_blocking_tool_ends_the_run_where_that_is_asked_for():
    def work(arguments):
        raise KeyError("x")

    tools = InThreads(Blocking(work), at_once=2)
    agent = tool_agent([says("", call())], tools, stop_at_faults=True)
    with pytest.raises(KeyError, match="x"):
        asyncio.run(attempts(agent, 2))


def test_a_mistake_in_the_recipe_rises_as_it_is():
    def work(arguments):
        raise RecipeError("tool.url is empty: set it")

    tools = InThreads(Blocking(work), at_once=2)
    with pytest.raises(RecipeError, match=r"tool\.url"):
        asyncio.run(attempts(tool_agent([says("", call())], tools), 2))


def test_a_tool_that_would_end_the_interpreter_fails_its_attempt_and_leaves_its_place():
    tools = InThreads(Blocking(lambda arguments: sys.exit(3)), at_once=1)
    (group,) = asyncio.run(attempts(tool_agent([says("", call())], tools), 2))
    why = "tool python: RuntimeError: it would end the program (sys.exit(3))"
    assert [one.verdict.why for one in group.episodes] == [why, why]


def test_a_cancelled_call_that_runs_keeps_its_place_and_one_in_line_is_never_begun():
    inside, leave = threading.Event(), threading.Event()

    def work(arguments):
        inside.set()
        assert leave.wait(GUARD)

    async def run():
        blocking = Blocking(work)
        tools = InThreads(blocking, at_once=1)
        running, waiting, later = (
            asyncio.create_task(tools.call(call(id=name))) for name in ("run", "wait", "later")
        )
        await asyncio.to_thread(inside.wait, GUARD)
        running.cancel()
        waiting.cancel()
        ended = await asyncio.gather(running, waiting, return_exceptions=True)
        for _ in range(20):
            await asyncio.sleep(0)
        taken = list(blocking.begun)
        leave.set()
        await later
        return ended, taken, blocking

    ended, taken, blocking = asyncio.run(run())
    assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
    assert taken == ["run"]  # though it was cancelled, it is still inside
    assert blocking.begun == ["run", "later"]
    assert blocking.most == 1


ENDS = """
import asyncio, threading
from forethought.core.messages import ToolCall
from forethought.tools.threads import InThreads

inside = threading.Event()

class Endless:
    specs = ()
    def call(self, call):
        inside.set()
        threading.Event().wait()

async def main():
    tools = InThreads(Endless(), at_once=1)
    call = asyncio.create_task(tools.call(ToolCall(id="0", name="endless", arguments="{}")))
    await asyncio.to_thread(inside.wait)
    call.cancel()

asyncio.run(main())
print("ended")
"""


def test_a_call_that_never_returns_keeps_neither_the_loop_nor_the_process_from_ending():
    words = [sys.executable, "-c", ENDS]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=GUARD, check=True)
    assert ended.stdout == "ended\n"
    assert ended.stderr == ""


@pytest.mark.parametrize("at_once", [0, -1])
def test_a_bound_below_one_is_refused(at_once):
    with pytest.raises(RecipeError, match=f"at_once = {at_once}: set it to 1 or more"):
        InThreads(Blocking(json.loads), at_once=at_once)
