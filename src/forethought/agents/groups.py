"""Many attempts at many problems, a bounded number at a time.

Does not cover what one attempt is (see `Solver`), nor what is made of the groups afterwards.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from forethought.agents.protocol import Solver
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Episode, Group

Item = TypeVar("Item")


async def attempt_groups(
    solver: Solver,
    problems: Sequence[Problem],
    *,
    size: int,
    seed: int,
    stage: str,
    at_once: int,
    progress: Callable[[Episode], None] | None = None,
) -> list[Group]:
    """Attempt each problem `size` times: one group a problem, in the order of the problems.

    Attempts run in fixed waves of at most `at_once`, and a wave ends before the next begins, so
    that what runs beside what does not depend on timing. A wave holds whole groups where they
    fit. `stage` names this call within the run, such as "rl/12"; `progress` is told of each
    episode as it ends.

    An attempt whose infrastructure breaks is an episode that is not measured. Any other error
    cancels what is running and rises.
    """
    _refuse_less_than_one("group size", size)
    _refuse_less_than_one("attempts at once", at_once)

    async def one(problem: Problem, key: RolloutKey) -> Episode:
        episode = await solver.attempt(problem, key)
        if progress is not None:
            progress(episode)
        return episode

    names = [f"{stage}/{place}/{problem.id}" for place, problem in enumerate(problems)]
    episodes: list[Episode] = []
    for places in _chunks(range(len(problems)), max(1, at_once // size)):
        attempts = [(place, rollout) for place in places for rollout in range(size)]
        for wave in _chunks(attempts, at_once):
            episodes += await concurrently(
                one(problems[place], RolloutKey(seed=seed, group=names[place], rollout=rollout))
                for place, rollout in wave
            )
    return [
        Group(id=name, problem=problem, episodes=tuple(members))
        for name, problem, members in zip(names, problems, _chunks(episodes, size), strict=True)
    ]


def refuse_unmeasured(groups: Sequence[Group], share: float, what: str) -> None:
    """Raise `RecipeError` when more than `share` of the attempts could not be measured.

    `what` is the limit's name, for the message: the setting that holds it, where one does.

    >>> refuse_unmeasured([], 0.1, "eval.max_not_measured")
    """
    attempts = [episode for group in groups for episode in group.episodes]
    lost = [episode for episode in attempts if not episode.measured]
    if len(lost) > share * len(attempts):
        why, count = Counter(episode.verdict.why for episode in lost).most_common(1)[0]
        raise RecipeError(
            f"{len(lost)} of {len(attempts)} attempts ({len(lost) / len(attempts):.0%}) were not "
            f"measured, more than {what} = {share}; {count} of them: {why}. Mend that and run the "
            "same command again: it resumes"
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


def _refuse_less_than_one(thing: str, value: int) -> None:
    if value < 1:
        raise RecipeError(f"{thing} is {value}: set it to 1 or more")
