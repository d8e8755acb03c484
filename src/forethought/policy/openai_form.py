"""Messages in the form of OpenAI's chat completions, and back.

Plain dictionaries in and out; the network is `remote`'s matter. Thinking is written and read as
`reasoning_content` (read as `reasoning` too), as open-weight servers do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

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
from forethought.policy.arguments import echo, encodable
from forethought.policy.calls import CALL, checked_call
from forethought.policy.parsing import THINK, THINK_END, Parsed, parse_assistant

Row = Mapping[str, Any]

_NO_PARAMETERS: Row = {"type": "object", "properties": {}}


def messages_to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation, one row a message.

    A call whose arguments are not a JSON object is written with the object
    `{"unreadable": "<what the model wrote>"}`: servers refuse anything else.
    """
    return [_row(message) for message in messages]


def messages_from_openai(
    rows: Sequence[object], where: str, tools: Sequence[ToolSpec] = ()
) -> tuple[Message, ...]:
    """A recorded conversation. Arguments, as an object or as its text, become one canonical text.

    Thinking and calls that stand in an assistant's text, between their tags, are read there; by
    `tools` the values of a call that is written in tags have types. Whether there is the tool that
    is called is not asked. `where` names the record in errors, which count messages from 0.
    Raises `RecipeError` on a row that cannot be read.
    """
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    for number, row in enumerate(rows):
        message = _recorded(row, f"{where}, message {number}", waiting, tools)
        if not isinstance(message, ToolReply):
            waiting = list(message.calls) if isinstance(message, Assistant) else []
        messages.append(message)
    return tuple(messages)


def tool_from_openai(entry: object, where: str) -> ToolSpec:
    """A tool from a row that lists it, as a function that may be called or by its fields alone.

    Raises `RecipeError` for what is no tool.
    """
    function = _mapping(entry).get("function") or entry
    name, parameters = _mapping(function).get("name"), _mapping(function).get("parameters")
    schema: object = _NO_PARAMETERS if parameters is None else parameters
    properties = _mapping(schema).get("properties", {})
    if not isinstance(name, str) or not name or not isinstance(schema, Mapping):
        raise RecipeError(f"{where}: {_shown(entry)} is no tool: give it a name and parameters")
    if not isinstance(properties, Mapping):
        raise RecipeError(
            f"{where}: the properties of the tool {name!r} are {_shown(properties)}: give an object"
        )
    description = _mapping(function).get("description")
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        parameters=cast("Row", schema),
    )


def answer_from_openai(row: Row, tools: Sequence[ToolSpec], first_id: int) -> Parsed:
    """What an endpoint answered, with calls numbered as `parse_assistant` numbers them.

    Thinking and calls that the server left in the text are read there, by the same rules.
    """
    parsed = parse_assistant(_text(row.get("content")), tools, first_id)
    message = replace(parsed.message, thinking=_thinking(row) or parsed.message.thinking)
    listed: object = row.get("tool_calls")
    if isinstance(listed, list) and listed and not parsed.unclosed_thinking:
        entries = enumerate(cast("list[object]", listed), first_id)
        calls = tuple(_answered_call(entry, f"call_{number}", tools) for number, entry in entries)
        message = replace(message, calls=calls)
    return replace(parsed, message=message)


def _row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.text}
    if isinstance(message, ToolReply):
        return row | {"tool_call_id": message.call_id}
    if not isinstance(message, Assistant):
        return row
    if message.thinking:
        row["reasoning_content"] = message.thinking
    if message.calls:
        row["tool_calls"] = [_call_row(call) for call in message.calls]
    return row


def _call_row(call: ToolCall) -> dict[str, Any]:
    readable = _object(call.arguments) is not None and call.name
    arguments = call.arguments if readable else json.dumps({"unreadable": echo(call.arguments)})
    function = {"name": call.name or "unreadable", "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _recorded(
    row: object, place: str, waiting: list[ToolCall], tools: Sequence[ToolSpec]
) -> Message:
    if not isinstance(row, Mapping):
        raise RecipeError(f"{place}: needs an object with `role` and `content`, got {_shown(row)}")
    row = cast("Row", row)
    match row.get("role"):
        case "system" | "developer":
            return System(text=_recorded_text(row, place))
        case "user":
            return User(text=_recorded_text(row, place))
        case "assistant":
            return _recorded_assistant(row, place, tools)
        case "tool" | "function":
            return _recorded_reply(row, place, waiting)
        case role:
            raise RecipeError(
                f"{place}: the role {role!r} is unknown: use system, user, assistant or tool"
            )


def _recorded_text(row: Row, place: str) -> str:
    """The text of a row, whole or in parts; none where it is absent."""
    content: object = row.get("content")
    parts = cast("list[object]", content) if isinstance(content, list) else [content]
    texts = [each if isinstance(each, str) else _mapping(each).get("text") for each in parts]
    for part, text in zip(parts, texts, strict=True):
        if not isinstance(text, str) and part is not None:
            raise RecipeError(
                f"{place}: the content holds {_shown(part)}, which is no text: leave the record out"
            )
    return encodable("".join(text for text in texts if isinstance(text, str)))


def _recorded_assistant(row: Row, place: str, tools: Sequence[ToolSpec]) -> Assistant:
    message = Assistant(text=_recorded_text(row, place))
    if any(tag in message.text for tag in (THINK, THINK_END, CALL)):
        parsed = parse_assistant(message.text, tools)
        if parsed.unclosed_thinking:
            raise RecipeError(f"{place}: {THINK} is not closed by {THINK_END}: mend the record")
        calls = tuple(_written_call(call, place) for call in parsed.message.calls)
        message = replace(parsed.message, calls=calls)
    single = row.get("function_call")  # what `tool_calls` were before there could be several
    listed: object = row.get("tool_calls") or ([single] if single else [])
    if not isinstance(listed, list):
        raise RecipeError(f"{place}: tool_calls is {_shown(listed)}: give a list")
    entries = enumerate(cast("list[object]", listed))
    calls = tuple(_recorded_call(entry, place, number) for number, entry in entries)
    thinking: object = row.get("reasoning_content") or row.get("reasoning") or ""
    if not isinstance(thinking, str):
        raise RecipeError(f"{place}: the reasoning is {_shown(thinking)}: give text")
    return replace(
        message, thinking=_thinking(row) or message.thinking, calls=calls or message.calls
    )


def _written_call(call: ToolCall, place: str) -> ToolCall:
    """A call that stood in the text, which names its tool where it could be read."""
    if not call.name:
        raise RecipeError(f"{place}: {call.fault}: mend the record or leave it out")
    return replace(call, arguments=_canonical(_object(call.arguments)), fault="")


def _recorded_call(entry: object, place: str, number: int) -> ToolCall:
    function = _mapping(_mapping(entry).get("function") or entry)
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        raise RecipeError(f"{place}: the call {_shown(entry)} has no name: mend the record")
    values: object = _object(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(values, dict):
        raise RecipeError(
            f"{place}: the arguments of the call of {name!r} are not a JSON object "
            f"({echo(str(arguments))}): mend the record or leave it out"
        )
    call_id = str(_mapping(entry).get("id") or f"call_{number}")
    return ToolCall(
        id=encodable(call_id), name=encodable(name), arguments=_canonical(cast("Row", values))
    )


def _canonical(values: Row | None) -> str:
    return encodable(json.dumps(values, ensure_ascii=False))


def _recorded_reply(row: Row, place: str, waiting: list[ToolCall]) -> ToolReply:
    """The reply to the call that the row names or, where it names none, to the next in order."""
    named: object = row.get("tool_call_id")
    for call in waiting:
        if named is None or named in ("", call.id):
            waiting.remove(call)
            text = _recorded_text(row, place)
            return ToolReply(call_id=call.id, name=call.name, text=text)
    call = "a call" if named is None else f"the call {named!r}"
    raise RecipeError(
        f"{place}: the reply answers {call}, which the assistant turn before it does not make: "
        "mend the record or leave it out"
    )


def _answered_call(entry: object, call_id: str, tools: Sequence[ToolSpec]) -> ToolCall:
    function = _mapping(_mapping(entry).get("function"))
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(arguments, dict):
        arguments = json.dumps(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, str):
        missing = "arguments" if isinstance(name, str) and name else "name"
        text = json.dumps(entry)
        fault = f"the call has no {missing}; the call was: {echo(text)}"
        return ToolCall(id=call_id, name="", arguments=text, fault=fault)
    return checked_call(call_id, encodable(name), encodable(arguments), tools)


def _mapping(value: object) -> Row:
    return cast("Row", value) if isinstance(value, Mapping) else {}


def _shown(value: object) -> str:
    return echo(json.dumps(value, ensure_ascii=False))


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _text(content: object) -> str:
    """Text that may be absent, or come in parts."""
    if isinstance(content, list):
        parts = cast("list[Row]", content)
        return encodable("".join(str(part.get("text", "")) for part in parts))
    return encodable(content) if isinstance(content, str) else ""


def _thinking(row: Row) -> str:
    return encodable(str(row.get("reasoning_content") or row.get("reasoning") or "")).strip()
