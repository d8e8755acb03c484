"""Episodes of a run's stages as JSON lines in OpenAI messages form, for other programs."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from forethought.core.messages import Assistant, Message, ToolCall, ToolReply
from forethought.core.trajectory import Episode, Group, Trajectory
from forethought.journal.files import written_beside
from forethought.journal.run import Run


def export_jsonl(run: Run, stages: Sequence[str], path: Path) -> dict[str, int]:
    """Write one episode a line to `path`, which appears whole; return how many of each stage.

    Lines are ASCII: characters that some readers take for the end of a line are escaped. `reward`
    and its `components` are null of an attempt that was not scored, and each that is not known.
    """
    counts = dict.fromkeys(stages, 0)
    with written_beside(path) as file:
        for stage in counts:
            for line in _lines(run, stage):
                file.write(json.dumps(line) + "\n")
                counts[stage] += 1
    return counts


def _lines(run: Run, stage: str) -> Iterator[dict[str, Any]]:
    for step in run.steps(stage):
        rewards = run.rewards(stage, step)
        for group in run.groups(stage, step):
            for episode in group.episodes:
                line = _line(group, episode, rewards.get(episode.id))
                yield {**line, "stage": stage, "step": step}


def _line(group: Group, episode: Episode, components: Mapping[str, float] | None) -> dict[str, Any]:
    sides = [_side(trajectory) for trajectory in episode.trajectories]
    first: dict[str, Any] = sides[0] if sides else {"messages": []}
    line = {
        **first,
        "id": episode.id,
        "group": group.id,
        "problem": episode.problem.id,
        "domain": episode.problem.domain,
        "answer": episode.problem.answer,
        "outcome": episode.verdict.outcome,
        "score": episode.verdict.score,
        "reward": None if components is None else _known(sum(components.values())),
        "components": components and {name: _known(one) for name, one in components.items()},
    }
    return line if len(sides) < 2 else {**line, "teammates": sides[1:]}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _side(trajectory: Trajectory) -> dict[str, Any]:
    said = [openai_message(message) for message in trajectory.messages]
    side = {"messages": said, "agent": trajectory.agent, "stop": trajectory.stop}
    if trajectory.tools is None:
        return side
    return {**side, "tools": [tool.as_function() for tool in trajectory.tools]}


def openai_message(message: Message) -> dict[str, Any]:
    """One message as chat-completions endpoints take it.

    They take only calls with a name and a JSON object. Another is named `unreadable` where it has
    no name, and its arguments become `{"unreadable": "<what the model wrote>"}`.
    """
    if isinstance(message, ToolReply):
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if isinstance(message, Assistant):
        return _assistant(message)
    return {"role": message.role, "content": message.text}


def _assistant(message: Assistant) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.thinking:
        said["reasoning_content"] = message.thinking
    if message.calls:
        said["tool_calls"] = [_call(call) for call in message.calls]
    return said


def _call(call: ToolCall) -> dict[str, Any]:
    readable = bool(call.name) and _is_object(call.arguments)
    arguments = call.arguments if readable else json.dumps({"unreadable": call.arguments})
    function = {"name": call.name or "unreadable", "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> NoReturn:
    """NaN and infinities, which Python reads and JSON does not know."""
    raise ValueError(constant)
