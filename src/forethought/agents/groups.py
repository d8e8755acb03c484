"""Many attempts at many problems, a bounded number at a time.

Does not cover what one attempt is (see `Solver`), nor what is made of the groups afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from forethought.agents.protocol import Solver
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Episode, Group

Item = TypeVar("Item")


Work = Callable[[], Coroutine[Any, Any, Episode]]
"""An attempt, not begun yet."""


class Flow(Protocol):
    """How many attempts are open, and when the next begins."""

    async def run(self, groups: Sequence[Sequence[Work]]) -> list[Episode]:
        """Make every attempt of these groups; episodes in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Waves:
    """Fixed waves of at most `at_once` attempts; a wave ends before the next begins.

    What runs beside what does not depend on timing then. A wave holds whole groups where they fit.
    """

    at_once: int

    async def run(self, groups: Sequence[Sequence[Work]]) -> list[Episode]:
        """One wave after the other."""
        done: list[Episode] = []
        size = max(map(len, groups), default=1)
        for some in _chunks(groups, max(1, self.at_once // size)):
            for wave in _chunks([work for group in some for work in group], self.at_once):
                done += await concurrently(work() for work in wave)
        return done


@dataclass(frozen=True, slots=True)
class Window:
    """`at_once` attempts are open: one begins when another ends, and none waits for the slowest."""

    at_once: int

    async def run(self, groups: Sequence[Sequence[Work]]) -> list[Episode]:
        """All at once, each when it has a place."""
        places = asyncio.Semaphore(self.at_once)

        async def in_a_place(work: Work) -> Episode:
            async with places:
                return await work()

        return await concurrently(in_a_place(work) for group in groups for work in group)


async def attempt_groups(
    solver: Solver,
    problems: Sequence[Problem],
    *,
    size: int,
    seed: int,
    stage: str,
    flow: Flow,
    progress: Callable[[Episode], None] | None = None,
) -> list[Group]:
    """Attempt each problem `size` times: one group a problem, in the order of the problems.

    `stage` names this call within the run, such as "rl/12"; `flow` says how many attempts are open;
    `progress` is told of each episode as it ends.

    An attempt whose infrastructure breaks is an episode that is not measured. Any other error
    cancels what is running and rises.
    """
    if size < 1:
        raise RecipeError(f"group size is {size}: set it to 1 or more")

    async def one(problem: Problem, key: RolloutKey) -> Episode:
        episode = await solver.attempt(problem, key)
        if progress is not None:
            progress(episode)
        return episode

    names = [f"{stage}/{place}/{problem.id}" for place, problem in enumerate(problems)]
    groups = [
        [
            partial(one, problem, RolloutKey(seed=seed, group=name, rollout=rollout))
            for rollout in range(size)
        ]
        for name, problem in zip(names, problems, strict=True)
    ]
    episodes = await flow.run(groups)
    return [
        Group(id=name, problem=problem, episodes=tuple(members))
        for name, problem, members in zip(names, problems, _chunks(episodes, size), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why `count` attempts are not measured. `trace` is the traceback of one, "" where none has."""

    why: str
    count: int
    trace: str


def commonest_failure(groups: Sequence[Group]) -> Failure | None:
    """Why most attempts that are not measured are not; None where every one is measured."""
    lost = unmeasured(groups)
    if not lost:
        return None
    why, count = Counter(episode.verdict.why for episode in lost).most_common(1)[0]
    alike = (episode for episode in lost if episode.verdict.why == why)
    traces = (trajectory.error for episode in alike for trajectory in episode.trajectories)
    return Failure(why, count, next(filter(None, traces), ""))


def unmeasured(groups: Sequence[Group]) -> list[Episode]:
    """The attempts that broken infrastructure took."""
    return [episode for group in groups for episode in group.episodes if not episode.measured]


def refuse_unmeasured(groups: Sequence[Group], share: float, what: str) -> None:
    """Raise `UnmeasuredError` when more than `share` of the attempts could not be measured.

    `what` is the limit's name, for the message: the setting that holds it, where one does.

    >>> refuse_unmeasured([], 0.1, "eval.max_not_measured")
    """
    attempts, lost = sum(len(group.episodes) for group in groups), len(unmeasured(groups))
    failure = commonest_failure(groups)
    if failure is not None and lost > share * attempts:
        raise UnmeasuredError(
            f"{lost} of {attempts} attempts ({lost / attempts:.0%}) were not "
            f"measured, more than {what} = {share}; {failure.count} of them: {failure.why}. Mend "
            "that and run the same command again: it resumes",
            failure.trace,
        )


async def concurrently(work: Iterable[Coroutine[Any, Any, Item]]) -> list[Item]:
    """Run all of `work` at once; results in its order.

    The first error cancels the rest, waits until they have stopped, and rises as itself.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(piece) for piece in work]
    except BaseExceptionGroup as failures:
        # Callers look for a `RecipeError` or a plain bug, not for a group that holds it.
        raise failures.exceptions[0] from None
    return [task.result() for task in running]


def _chunks(items: Sequence[Item], length: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + length] for start in range(0, len(items), length))
