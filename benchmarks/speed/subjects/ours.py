"""Forethought as the subjects use it: a taught model, an engine, episodes that are counted."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from forethought.agents.protocol import Solver
from forethought.agents.tool_agent import AgentSettings
from forethought.app.engine import Engine, compute_in_one_thread, start_engine
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Episode
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.models import load_local
from forethought.policy.protocol import SamplingSettings
from forethought.tools.settings import PythonSettings

Task = Mapping[str, Any]
TOOL = PythonSettings(shown_characters=200)


@contextmanager
def engine_of(task: Task) -> Generator[Engine]:
    """The engine for the task's model, with the compute settings that the task gives.

    As in a run, nothing has been computed by several threads before.
    """
    compute_in_one_thread()
    compute = ComputeSettings.model_validate(task.get("compute", {}))
    with start_engine(load_local(task["model"]), compute) as engine:
        yield engine


def problems_of(task: Task) -> list[Problem]:
    """The task's problems."""
    return [Problem(**each) for each in task["problems"]]


def sampling_of(task: Task) -> SamplingSettings:
    """Temperature 1, nothing cut off, so many tokens in a turn."""
    return SamplingSettings(temperature=1.0, top_p=1.0, max_tokens=task["tokens"])


def limits_of(task: Task) -> AgentSettings:
    """So many turns with calls, so many tokens in an attempt."""
    return AgentSettings(max_turns=task["turns"], max_tokens=task["tokens"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A solver that remembers the episodes it made."""

    solver: Solver
    episodes: list[Episode] = field(default_factory=list[Episode])

    async def attempt(self, problem: Problem, key: RolloutKey) -> Episode:
        """Attempt, and remember."""
        episode = await self.solver.attempt(problem, key)
        self.episodes.append(episode)
        return episode


def tokens_of(episode: Episode) -> int:
    """Tokens that the model generated in it."""
    return sum(turn.tokens for one in episode.trajectories for turn in one.turns)


def calls_of(episode: Episode) -> int:
    """Calls that were answered in it."""
    return sum(len(turn.replies) for one in episode.trajectories for turn in one.turns)
