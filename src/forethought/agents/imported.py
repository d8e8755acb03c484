"""Recorded trajectories from a file: demonstrations that somebody else made.

Nothing is run and nothing is graded: a row is taken as it is. It counts as right unless it says
otherwise itself, by an `outcome` or a `reward`. The shapes of rows are `policy`'s matter.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forethought.core.errors import RecipeError
from forethought.core.messages import (
    Assistant,
    Message,
    System,
    ToolCall,
    ToolReply,
    ToolSpec,
    User,
)
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Group, Stop, Trajectory, Turn
from forethought.core.verdict import Outcome, Verdict
from forethought.policy.arguments import argument_fault, echo
from forethought.policy.openai_form import messages_from_openai
from forethought.policy.published_form import conversation, own_tools
from forethought.tasks.files import read_rows

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """The groups of a file, one attempt each, and a sentence for each row that cannot be used."""

    groups: tuple[Group, ...]
    unusable: tuple[str, ...]


def imported(path: Path, tools: Sequence[ToolSpec]) -> ImportedFile:
    """The conversations of a file of JSON lines, or of one JSON list, in its order.

    A row's `tools` are those that its agent was told of; where it lists none, they are the run's,
    `tools`. Raises `RecipeError` for a file that cannot be read, naming the row, and for an `id`
    that is used twice.
    """
    groups, unusable = dict[str, Group](), list[str]()
    for row, fields in read_rows(path):
        try:
            group = _group(f"{path.name.partition('.')[0]}-{row}", f"row {row}", fields, tools)
        except RecipeError as error:
            unusable.append(str(error))
            continue
        if group.id in groups:
            raise RecipeError(
                f"{path}, row {row}: the id {group.problem.id!r} is taken: make ids unique, or "
                "leave them out"
            )
        groups[group.id] = group
    return ImportedFile(groups=tuple(groups.values()), unusable=tuple(unusable))


def _group(name: str, where: str, fields: Fields, tools: Sequence[ToolSpec]) -> Group:
    own = own_tools(fields, where)
    told = tools if own is None else own
    messages = messages_from_openai(conversation(fields, where), where, told)
    trajectory = _trajectory(messages, own, where)
    _refuse_silence(messages, where)
    _refuse_unknown_calls(messages, told, where)
    if own is None:
        _refuse_wrong_arguments(messages, tools, where)
    answer = fields.get("answer")
    problem = Problem(
        id=_label(fields, "id", where) or name,
        prompt=next((each.text for each in messages if isinstance(each, User)), ""),
        answer=str(answer) if isinstance(answer, str | int | float) else "",
        domain=_label(fields, "domain", where) or "general",
        tools=tuple(tool.name for tool in told),
    )
    group = f"collect/{problem.id}"
    episode = Episode(
        id=f"{group}/0",
        problem=problem,
        trajectories=(trajectory,),
        verdict=_verdict(fields, where),
    )
    return Group(id=group, problem=problem, episodes=(episode,))


def _trajectory(
    messages: Sequence[Message], tools: tuple[ToolSpec, ...] | None, where: str
) -> Trajectory:
    spoken = [(place, each) for place, each in enumerate(messages) if isinstance(each, Assistant)]
    if not spoken:
        raise RecipeError(f"{where}: the assistant says nothing in it: leave the row out")
    first = spoken[0][0]
    if first == 0:
        raise RecipeError(
            f"{where}: it begins with the assistant: put what that answers before it, or leave the "
            "row out"
        )
    ends = [*(place for place, _ in spoken[1:]), len(messages)]
    turns = tuple(
        _turn(message, messages[place + 1 : end])
        for (place, message), end in zip(spoken, ends, strict=True)
    )
    return Trajectory(
        agent="imported",
        opening=tuple(messages[:first]),
        turns=turns,
        stop=Stop.TURN_LIMIT if turns[-1].message.calls else Stop.ANSWERED,
        tools=tools,
    )


def _turn(message: Assistant, after: Sequence[Message]) -> Turn:
    """What the assistant said, with all that stands between that and its next turn."""
    return Turn(
        message=message,
        finish=Finish.END_OF_TURN,
        replies=tuple(each for each in after if isinstance(each, ToolReply)),
        heard=tuple(each for each in after if isinstance(each, System | User)),
    )


def _verdict(fields: Fields, where: str) -> Verdict:
    """What a row says of itself: its `outcome` or, without one, whether its `reward` is 1."""
    outcome, reward = fields.get("outcome"), fields.get("reward")
    if outcome is not None:
        if outcome not in list(Outcome):
            raise RecipeError(
                f"{where}: the outcome is {_shown(outcome)}: use {', '.join(Outcome)}, or name the "
                "field otherwise"
            )
        score = 1.0 if outcome == Outcome.RIGHT else 0.0
        return Verdict(outcome=Outcome(outcome), score=score, why="as its row says")
    if reward is None:
        return Verdict.right(why="taken as it is")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or math.isnan(reward):
        raise RecipeError(f"{where}: the reward is {_shown(reward)}: give a number, or none")
    why = f"its row has the reward {reward:g}"
    return Verdict.right(why=why) if reward >= 1 else Verdict.wrong(why=why, score=max(reward, 0.0))


def _refuse_silence(messages: Sequence[Message], where: str) -> None:
    for number, message in enumerate(messages):
        calls = isinstance(message, Assistant) and message.calls
        if isinstance(message, Assistant | User) and not calls and not message.text.strip():
            raise RecipeError(
                f"{where}, message {number}: the {message.role} says nothing: mend the row, or "
                "leave it out"
            )


def _refuse_unknown_calls(
    messages: Sequence[Message], tools: Sequence[ToolSpec], where: str
) -> None:
    names = [tool.name for tool in tools]
    for number, call in _calls(messages):
        if call.name not in names:
            raise RecipeError(
                f"{where}, message {number}: it calls {echo(call.name)!r}, and the tools are: "
                f"{', '.join(names) or 'none'}; list that tool in the row's `tools`, rename it, or "
                "leave the row out"
            )


def _refuse_wrong_arguments(
    messages: Sequence[Message], tools: Sequence[ToolSpec], where: str
) -> None:
    """Refuse a call that the run's own tool would answer with a fault."""
    parameters = {tool.name: tool.parameters for tool in tools}
    for number, call in _calls(messages):
        fault = argument_fault(json.loads(call.arguments), parameters[call.name])
        if fault:
            raise RecipeError(
                f"{where}, message {number}: the call of {call.name!r}: {fault}; mend it, or list "
                "the tool as it was in the row's `tools`"
            )


def _calls(messages: Sequence[Message]) -> Iterator[tuple[int, ToolCall]]:
    """Each call, with the number of its message."""
    for number, message in enumerate(messages):
        if isinstance(message, Assistant):
            yield from ((number, call) for call in message.calls)


def _label(fields: Fields, name: str, where: str) -> str:
    """A field of text or a number; empty where it is absent."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return (value or "").strip()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecipeError(f"{where}: {name!r} is {_shown(value)}: give text, or leave it out")
    return str(value)


def _shown(value: object) -> str:
    return echo(json.dumps(value, ensure_ascii=False))
