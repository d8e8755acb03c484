"""How long an attempt is, what it loses for that, and how long it went on without a tool."""

from itertools import chain
from typing import Literal

from forethought.core.trajectory import Episode, Tokens, Trajectory
from forethought.learning.rewards.calls import executed
from forethought.learning.rewards.settings import RewardSettings


def overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then a straight line to -1 at `limit` (2510.11701, eq. 9).

    Raises ValueError for a buffer that is not within the limit, or holds no token.

    >>> [overlong_penalty(length, limit=20480, buffer=4096) for length in (16384, 18432, 20481)]
    [0.0, -0.5, -1.0]
    """
    if not 0 < buffer <= limit:
        raise ValueError(
            f"an overlong buffer of {buffer} tokens before a limit of {limit}: it needs at least "
            "one token and no more than the limit"
        )
    return min(0.0, max(-1.0, (limit - buffer - length) / buffer))


def response_length(episode: Episode, basis: Literal["policy_tokens", "all_tokens"]) -> int:
    """The length of the episode's longest trajectory: a limit holds for each agent alone.

    `all_tokens` counts a segment from its first sampled token on, replies of tools included.
    """
    if basis == "policy_tokens":
        lengths = [trajectory.sampled_tokens for trajectory in episode.trajectories]
    else:
        lengths = [_response_tokens(trajectory) for trajectory in episode.trajectories]
    return max(lengths, default=0)


def overlong(episode: Episode, settings: RewardSettings) -> float:
    """What an episode loses by its length: all there is to lose where that is why it ended.

    A reply that fills the context, or a limit of one turn, cuts off what has few tokens of its own.
    """
    if settings.overlong_buffer == 0:
        return 0.0
    if any(trajectory.too_long for trajectory in episode.trajectories):
        return -settings.overlong_factor
    return settings.overlong_factor * overlong_penalty(
        response_length(episode, settings.length_basis),
        limit=settings.overlong_limit,
        buffer=settings.overlong_buffer,
    )


def longest_without_tool(episode: Episode) -> int:
    """The most sampled tokens in a row, in one trajectory, between which no tool ran."""
    return max(chain.from_iterable(map(_stretches, episode.trajectories)), default=0)


def excess(length: int, limit: int) -> float:
    """How far `length` is over `limit`, as a share of it: 0 within, 1 from twice the limit on.

    >>> [excess(length, limit=100) for length in (100, 150, 900)]
    [0.0, 0.5, 1.0]
    """
    return min(1.0, max(0, length - limit) / limit)


def _stretches(trajectory: Trajectory) -> list[int]:
    stretches = [0]
    for turn in trajectory.turns:
        stretches[-1] += turn.tokens
        if executed(turn):
            stretches.append(0)
    return stretches


def _response_tokens(trajectory: Trajectory) -> int:
    return sum(_response_part(segment) for segment in trajectory.segments)


def _response_part(segment: Tokens) -> int:
    return len(segment) - segment.sampled.index(True) if any(segment.sampled) else 0
