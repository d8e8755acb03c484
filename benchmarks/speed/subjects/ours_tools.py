"""Forethought's attempts with a tool that takes its time: how many tokens a second are spoken.

So many conversations are kept open: where one ends, the next begins. Tokens are counted as turns
end, after a time for getting under way, and until the time is up.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.ours import engine_of, limits_of, problems_of, sampling_of

from forethought.agents.tool_agent import ToolAgent
from forethought.app.engine import Engine
from forethought.core.messages import ToolCall, ToolReply, ToolSpec
from forethought.core.randomness import RolloutKey
from forethought.policy.protocol import Sampled, Sampler, SamplingSettings, Seat
from forethought.policy.token_policy import TokenPolicy
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PYTHON


@dataclass(slots=True, kw_only=True)
class SlowTool:
    """Answers every call alike after so many seconds, and notes when it was called."""

    seconds: float
    calls: list[float] = field(default_factory=list[float])
    specs: tuple[ToolSpec, ...] = (PYTHON,)

    async def call(self, call: ToolCall) -> ToolReply:
        """Wait, then answer."""
        self.calls.append(time.perf_counter())
        await asyncio.sleep(self.seconds)
        return ToolReply(call_id=call.id, name=call.name, text="42")


@dataclass(slots=True, kw_only=True)
class Counter:
    """A sampler that notes when each turn ended and how long it was."""

    sampler: Sampler
    turns: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    def sit(self) -> "CountedSeat":
        """Take a place."""
        return CountedSeat(counter=self, seat=self.sampler.sit())


@dataclass(slots=True, kw_only=True)
class CountedSeat:
    """A place at a `Counter`."""

    counter: Counter
    seat: Seat

    async def sample(
        self, ids: Sequence[int], stop: Sequence[int], settings: SamplingSettings, seed: int
    ) -> Sampled:
        """Sample one turn, and note it."""
        sampled = await self.seat.sample(ids, stop, settings, seed)
        self.counter.turns.append((time.perf_counter(), len(sampled.ids)))
        return sampled

    def leave(self) -> None:
        """Give the place up."""
        self.seat.leave()


async def keep_open(task: Task, engine: Engine, tool: SlowTool) -> Counter:
    """Keep conversations open for as long as the task says."""
    counter = Counter(sampler=engine.sampler)
    policy = TokenPolicy(sampler=counter, format=engine.model.format, settings=sampling_of(task))
    agent = ToolAgent(policy=policy, tools=tool, grader=BoxedGrader(), limits=limits_of(task))
    problems, numbers = problems_of(task), count()

    async def place() -> None:
        while True:
            number = next(numbers)
            key = RolloutKey(seed=task["seed"], group=f"tools/{number}", rollout=0)
            await agent.attempt(problems[number % len(problems)], key)

    places = [asyncio.create_task(place()) for _ in range(task["open"])]
    await asyncio.wait(places, timeout=task["warm_seconds"] + task["seconds"])
    for each in places:
        each.cancel()
    await asyncio.gather(*places, return_exceptions=True)
    return counter


def figures(
    task: Task, began: float, turns: Sequence[tuple[float, int]], calls: Sequence[float]
) -> dict[str, float]:
    """What the turns that ended while it counts came to, and the calls that were begun then.

    `waiting_share` is the share of conversations that wait for the tool on average: as many calls
    as come in the time that one takes.
    """
    since = began + task["warm_seconds"]
    until = since + task["seconds"]
    tokens = sum(tokens for at, tokens in turns if since <= at < until)
    calls_per_s = sum(since <= at < until for at in calls) / task["seconds"]
    return {
        "seconds": task["seconds"],
        "tokens": float(tokens),
        "tokens_per_s": tokens / task["seconds"],
        "calls_per_s": calls_per_s,
        "open": task["open"],
        "waiting_share": calls_per_s * task["tool_seconds"] / task["open"],
    }


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Tokens per second while all conversations are open."""
    with engine_of(task) as engine:
        tool = SlowTool(seconds=task["tool_seconds"])
        began = time.perf_counter()
        counter = asyncio.run(keep_open(task, engine, tool))
        found = figures(task, began, counter.turns, tool.calls)
        return {task["case"]: found}, {"workers": engine.crew.size}


if __name__ == "__main__":
    answer(measure)
