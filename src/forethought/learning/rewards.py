"""What training makes of an episode. Exams read verdicts and never see this."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self, cast

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.messages import ToolCall, ToolStatus
from forethought.core.settings import Settings
from forethought.core.trajectory import Episode, Tokens, Trajectory, Turn

INERT_CALLS = -1
"""Calls that the released recipe counts in every attempt: (turns - 2) / 2, with 0 turns seen."""


class RewardSettings(Settings):
    """What an attempt earns: for its answer, for its calls, and for running too long."""

    variant: Literal["gated", "paper", "released", "outcome"] = "gated"
    """gated: calls soften a wrong answer; paper: they also add to a correct one; released: as the
    published recipe runs, every wrong answer alike; outcome: the answer alone."""
    tool_bonus: float = Field(default=0.1, ge=0)
    """What one successful, non-duplicate call earns."""
    bonus_cap: int = Field(default=4, ge=0)
    """Calls that earn at most."""
    wrong_ceiling: float = Field(default=-0.6, ge=-1, le=1)
    """A wrong answer earns no more than this, whatever its calls."""
    overlong_buffer: int = Field(default=0, ge=0)
    """Tokens before the limit in which the penalty grows from 0 to its full size; 0: no penalty."""
    overlong_limit: int = Field(default=0, ge=0)
    """Length in tokens at which the penalty is full."""
    overlong_factor: float = Field(default=1.0, ge=0)
    """The full penalty."""
    length_basis: Literal["policy_tokens", "all_tokens"] = "policy_tokens"
    """Whether what tools replied counts as length."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.overlong_buffer > self.overlong_limit:
            raise RecipeError(
                f"reward.overlong_buffer = {self.overlong_buffer}: it lies within the limit, and "
                f"reward.overlong_limit is {self.overlong_limit}; raise the limit or shrink the "
                "buffer (0 turns the penalty off)"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Named parts that add up to the total, and what each turn earned by its calls.

    `per_turn` has one number a turn, trajectory after trajectory.

    >>> Reward(components={"outcome": -1.0, "tool_bonus": 0.25}, per_turn=(0.25, 0.0)).total
    -0.75
    """

    components: Mapping[str, float]
    per_turn: tuple[float, ...]

    @property
    def total(self) -> float:
        """The sum of the components."""
        return sum(self.components.values())


def score_episode(episode: Episode, settings: RewardSettings) -> Reward:
    """The components "outcome", "tool_bonus" and "overlong" of one measured episode.

    Raises ValueError for an episode that is not measured: it has no reward, not even 0.
    """
    if not episode.measured:
        raise ValueError(
            f"episode {episode.id} is not measured ({episode.verdict.why}): leave it out of its "
            "group instead of scoring it"
        )
    per_turn = _share_bonus(fresh_successes(episode), _bonus_room(episode, settings), settings)
    bonus = sum(per_turn)
    if settings.variant == "released" and not episode.right:
        bonus = INERT_CALLS * settings.tool_bonus
    return Reward(
        components={
            "outcome": 1.0 if episode.right else -1.0,
            "tool_bonus": bonus,
            "overlong": _overlong(episode, settings),
        },
        per_turn=per_turn,
    )


def fresh_successes(episode: Episode) -> tuple[int, ...]:
    """For each turn, its calls that went well and that no agent of the episode had made before.

    Calls are the same when they name one tool with equal arguments, comments and blank lines of
    code aside.
    """
    seen: set[str] = set()
    counts: list[int] = []
    for turn in (turn for trajectory in episode.trajectories for turn in trajectory.turns):
        fresh = {_fingerprint(call) for call in _successes(turn)} - seen
        seen |= fresh
        counts.append(len(fresh))
    return tuple(counts)


def overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """0 up to `limit - buffer` tokens, then a straight line to -1 at `limit` (2510.11701, eq. 9).

    >>> [overlong_penalty(length, limit=20480, buffer=4096) for length in (16384, 18432, 20481)]
    [0.0, -0.5, -1.0]
    """
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


def _response_tokens(trajectory: Trajectory) -> int:
    return sum(_response_part(segment) for segment in trajectory.segments)


def _response_part(segment: Tokens) -> int:
    return len(segment) - segment.sampled.index(True) if any(segment.sampled) else 0


def _overlong(episode: Episode, settings: RewardSettings) -> float:
    if settings.overlong_buffer == 0:
        return 0.0
    return settings.overlong_factor * overlong_penalty(
        response_length(episode, settings.length_basis),
        limit=settings.overlong_limit,
        buffer=settings.overlong_buffer,
    )


def _bonus_room(episode: Episode, settings: RewardSettings) -> float:
    """The most that calls can add to this episode."""
    if settings.variant in ("outcome", "released"):
        return 0.0
    most = settings.bonus_cap * settings.tool_bonus
    if episode.right:
        return most if settings.variant == "paper" else 0.0
    return min(most, settings.wrong_ceiling + 1.0)


def _share_bonus(
    counts: tuple[int, ...], room: float, settings: RewardSettings
) -> tuple[float, ...]:
    """What each turn adds, earlier turns first, until the room is used up."""
    earned: list[float] = []
    for count in counts:
        share = min(count * settings.tool_bonus, max(0.0, room))
        room -= share
        earned.append(share)
    return tuple(earned)


def _successes(turn: Turn) -> Iterator[ToolCall]:
    calls = {call.id: call for call in turn.message.calls}
    for reply in turn.replies:
        if reply.status is ToolStatus.OK and reply.call_id in calls:
            yield calls[reply.call_id]


def _fingerprint(call: ToolCall) -> str:
    """The call in a form that layout does not change; text that is not JSON stays as it is."""
    try:
        return json.dumps([call.name, _squeeze(json.loads(call.arguments))], sort_keys=True)
    except (ValueError, RecursionError):
        return f"{call.name} {call.arguments}"


def _squeeze(value: object) -> object:
    """Texts without comment lines, blank lines and trailing blanks; other values unchanged."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return {name: _squeeze(part) for name, part in named.items()}
    if not isinstance(value, str):
        return value
    lines = (line.rstrip() for line in value.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
