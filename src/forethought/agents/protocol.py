"""Anything that can attempt a problem, alone or as a team."""

from typing import Protocol

from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Episode


class Solver(Protocol):
    """One agent or a team."""

    async def attempt(self, problem: Problem, key: RolloutKey) -> Episode:
        """Attempt the problem once. Broken infrastructure is an episode *not measured*."""
        ...
