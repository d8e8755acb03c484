"""Problems, episodes and rewards as a database holds them, exact in both directions.

A body is JSON made from the core's own types, compressed with zstandard. An attempt at its
group's own problem leaves the problem out: it is stored once, with the group. Floats are written
with the shortest digits that read back to the same bits. `Problem.data` must be JSON: a tuple in
it comes back as a list.
"""

import json
import math
from collections.abc import Mapping

import zstandard
from pydantic import ConfigDict, TypeAdapter

from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Trajectory
from forethought.core.verdict import Verdict

_Body = tuple[str, Problem | None, tuple[Trajectory, ...], Verdict]

_EXACT = ConfigDict(ser_json_inf_nan="constants")
_PROBLEMS = TypeAdapter[tuple[Problem]](tuple[Problem], config=_EXACT)
_BODIES = TypeAdapter[_Body](_Body, config=_EXACT)
_LEVEL = 3


def pack_problem(problem: Problem) -> bytes:
    """A problem as bytes."""
    return zstandard.compress(_PROBLEMS.dump_json((problem,)), _LEVEL)


def unpack_problem(body: bytes) -> Problem:
    """The problem that `pack_problem` made into bytes."""
    (problem,) = _PROBLEMS.validate_json(zstandard.decompress(body))
    return problem


def pack_episode(episode: Episode, problem: Problem) -> bytes:
    """An attempt as bytes, given its group's problem."""
    own = None if episode.problem is problem else episode.problem
    parts = (episode.id, own, episode.trajectories, episode.verdict)
    return zstandard.compress(_BODIES.dump_json(parts), _LEVEL)


def unpack_episode(body: bytes, problem: Problem) -> Episode:
    """The attempt that `pack_episode` made into bytes, given its group's problem."""
    name, own, trajectories, verdict = _BODIES.validate_json(zstandard.decompress(body))
    return Episode(id=name, problem=own or problem, trajectories=trajectories, verdict=verdict)


def pack_reward(components: Mapping[str, float] | None) -> tuple[float | None, str | None]:
    """A reward as its total and its components in JSON; both None of an attempt without one.

    What is not known (NaN) is null, and so is the total then.

    >>> pack_reward({"outcome": -1.0, "tool_bonus": 0.25})
    (-0.75, '{"outcome": -1.0, "tool_bonus": 0.25}')
    """
    if components is None:
        return None, None
    known = {name: None if math.isnan(one) else one for name, one in components.items()}
    total = sum(components.values())
    return None if math.isnan(total) else total, json.dumps(known)


def unpack_reward(components: str) -> dict[str, float]:
    """The components that `pack_reward` wrote; NaN where one is not known."""
    known: dict[str, float | None] = json.loads(components)
    return {name: math.nan if one is None else one for name, one in known.items()}
