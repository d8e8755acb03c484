"""What happened to the calls of an attempt: new or repeated, parsed or not, mended or not.

Counts a turn, trajectory after trajectory. What they earn or cost is not decided here.
"""

import json
from collections.abc import Callable
from itertools import chain
from typing import cast

from forethought.core.messages import ToolCall, ToolReply, ToolStatus
from forethought.core.trajectory import Episode, Trajectory, Turn

FAILURES = frozenset({ToolStatus.MODEL_ERROR, ToolStatus.TIMEOUT, ToolStatus.MEMORY})
"""How a call fails by what the model wrote."""


def turns_of(episode: Episode) -> tuple[Turn, ...]:
    """Every turn, trajectory after trajectory."""
    return tuple(chain.from_iterable(trajectory.turns for trajectory in episode.trajectories))


def executed(turn: Turn) -> tuple[tuple[ToolCall, ToolReply], ...]:
    """The calls of a turn that could be parsed and were answered, each with its reply."""
    calls = {call.id: call for call in turn.message.calls if not call.fault}
    return tuple((calls[reply.call_id], reply) for reply in turn.replies if reply.call_id in calls)


def successes(turn: Turn) -> tuple[tuple[ToolCall, ToolReply], ...]:
    """The calls of a turn that went well, each with its reply."""
    calls = {call.id: call for call in turn.message.calls}
    return tuple(
        (calls[reply.call_id], reply)
        for reply in turn.replies
        if reply.status is ToolStatus.OK and reply.call_id in calls
    )


def fresh_successes(episode: Episode) -> tuple[int, ...]:
    """For each turn, its calls that went well and that no agent of the episode had made before.

    Calls are the same when they name one tool with equal arguments, comments and blank lines of
    code aside.
    """
    seen: set[str] = set()
    counts: list[int] = []
    for turn in turns_of(episode):
        fresh = {fingerprint(call) for call, _ in successes(turn)} - seen
        seen |= fresh
        counts.append(len(fresh))
    return tuple(counts)


def unparsable(episode: Episode) -> tuple[int, ...]:
    """For each turn, its calls that could not be parsed."""
    return tuple(sum(bool(call.fault) for call in turn.message.calls) for turn in turns_of(episode))


def unmended(episode: Episode) -> tuple[int, ...]:
    """For each turn, its calls that ran, failed, and were not followed by a changed call.

    What follows is the next turn with calls of the same agent. White space does not change a call.
    """
    return tuple(chain.from_iterable(map(_unmended, episode.trajectories)))


def fingerprint(call: ToolCall) -> str:
    """The call in a form that layout does not change; text that is not JSON stays as it is."""
    return _written(call, _without_layout)


def _unmended(trajectory: Trajectory) -> tuple[int, ...]:
    counts: list[int] = []
    following: set[str] = set()
    for turn in reversed(trajectory.turns):
        failed = [call for call, reply in executed(turn) if reply.status in FAILURES]
        counts.append(sum(not following - {_written(call, _squeezed)} for call in failed))
        if turn.message.calls:
            following = {_written(call, _squeezed) for call in turn.message.calls}
    return tuple(reversed(counts))


def _written(call: ToolCall, clean: Callable[[str], str]) -> str:
    try:
        return json.dumps([call.name, _cleaned(json.loads(call.arguments), clean)], sort_keys=True)
    except (ValueError, RecursionError):
        return f"{call.name} {call.arguments}"


def _cleaned(value: object, clean: Callable[[str], str]) -> object:
    """The texts in `value` cleaned; other values unchanged."""
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return {name: _cleaned(part, clean) for name, part in named.items()}
    return clean(value) if isinstance(value, str) else value


def _without_layout(text: str) -> str:
    """Without comment lines, blank lines and trailing blanks."""
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))


def _squeezed(text: str) -> str:
    """Without any white space."""
    return "".join(text.split())
