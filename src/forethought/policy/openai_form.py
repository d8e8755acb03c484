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
from forethought.policy.calls import checked_call
from forethought.policy.parsing import Parsed, parse_assistant

Row = Mapping[str, Any]


def tool_to_openai(tool: ToolSpec) -> dict[str, Any]:
    """A tool as a function that may be called."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def messages_to_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation, one row a message.

    A call whose arguments are not a JSON object is written with the object
    `{"unreadable": "<what the model wrote>"}`: servers refuse anything else.
    """
    return [_row(message) for message in messages]


def messages_from_openai(rows: Sequence[Row], where: str) -> tuple[Message, ...]:
    """A recorded conversation. Arguments, as an object or as its text, become one canonical text.

    `where` names the record in errors. Raises `RecipeError` on a row that cannot be read.
    """
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    for number, row in enumerate(rows):
        place = f"{where}, message {number}"
        message = _recorded(row, place, waiting)
        if isinstance(message, Assistant):
            waiting = list(message.calls)
        messages.append(message)
    return tuple(messages)


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


def _recorded(row: Row, place: str, waiting: list[ToolCall]) -> Message:
    text = _text(row.get("content"))
    match row.get("role"):
        case "system" | "developer":
            return System(text=text)
        case "user":
            return User(text=text)
        case "assistant":
            entries = cast("list[Row]", row.get("tool_calls") or [])
            calls = [_recorded_call(entry, place, n) for n, entry in enumerate(entries)]
            return Assistant(text=text, thinking=_thinking(row), calls=tuple(calls))
        case "tool":
            return _recorded_reply(row, place, waiting)
        case role:
            raise RecipeError(
                f"{place}: the role {role!r} is unknown: use system, user, assistant or tool"
            )


def _recorded_call(entry: Row, place: str, number: int) -> ToolCall:
    function = cast("Row", entry.get("function") or entry)
    name, arguments = function.get("name"), function.get("arguments")
    values = _object(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(name, str) or not isinstance(values, dict):
        raise RecipeError(
            f"{place}: the arguments of the call of {name!r} are not a JSON object "
            f"({echo(str(arguments))}): mend the record or leave it out"
        )
    canonical = json.dumps(values, ensure_ascii=False)
    return ToolCall(id=str(entry.get("id") or f"call_{number}"), name=name, arguments=canonical)


def _recorded_reply(row: Row, place: str, waiting: list[ToolCall]) -> ToolReply:
    """The reply to the call that the row names or, where it names none, to the next in order."""
    named = row.get("tool_call_id")
    for call in waiting:
        if named in {None, call.id}:
            waiting.remove(call)
            return ToolReply(call_id=call.id, name=call.name, text=_text(row.get("content")))
    raise RecipeError(
        f"{place}: the reply answers the call {named!r}, which the assistant turn before it does "
        "not make: mend the record or leave it out"
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
