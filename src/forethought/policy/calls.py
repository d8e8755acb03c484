"""One tool call, from the text between its tags to a `ToolCall`.

Two written forms are read: a JSON object with `name` and `arguments`, and `<function=…>` with
`<parameter=…>` tags. Text that is not a call becomes a `ToolCall` with a `fault`; its `name` is
then empty and its `arguments` are the whole text between the tags. Where calls stand in a turn is
`parsing`'s matter; nothing is repaired and nothing is run here.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from forethought.core.messages import ToolCall, ToolSpec
from forethought.policy.arguments import argument_fault, echo, typed_value

CALL, CALL_END = "<tool_call>", "</tool_call>"

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r"[\w.:/-]{1,128}")
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*)</function>", re.DOTALL)
_FUNCTION_END = re.compile(r"</function>\s*(?=</tool_call>)")
_PARAMETER = re.compile(
    r"\s*<parameter=([^>\s]+)>(.*?)</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)


class _MalformedError(ValueError):
    """The text is not a call; the message says what is wrong and where."""


def read_call(
    text: str, start: int, call_id: str, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    """The call whose opening tag ends at `start`, and where the text after it begins."""
    stop, end = _extent(text, start)
    body = text[start:stop].strip()
    try:
        name, arguments = _read(body, tools, closed=end > stop)
    except _MalformedError as malformed:
        fault = f"{malformed}; the call was: {echo(body)}"
        return ToolCall(id=call_id, name="", arguments=body, fault=fault), end
    return checked_call(call_id, name, arguments, tools), end


def checked_call(call_id: str, name: str, arguments: str, tools: Sequence[ToolSpec]) -> ToolCall:
    """A call whose name and arguments are known apart, with its `fault` where it has one.

    >>> checked_call("call_0", "python", "{}", ()).fault
    'there is no tool python; the tools are: none'
    """
    try:
        fault = _fault(name, _object(arguments, "the arguments"), tools)
    except _MalformedError as malformed:
        fault = f"{malformed}; the arguments were: {echo(arguments)}"
    return ToolCall(id=call_id, name=name, arguments=arguments, fault=fault)


def _fault(name: str, arguments: Mapping[str, object], tools: Sequence[ToolSpec]) -> str:
    parameters = {tool.name: tool.parameters for tool in tools}
    if name not in parameters:
        return f"there is no tool {echo(name)}; the tools are: {', '.join(parameters) or 'none'}"
    return argument_fault(arguments, parameters[name])


def _extent(text: str, start: int) -> tuple[int, int]:
    """Where a call's body and its closing tag end; equal where there is no closing tag.

    A body that can be read ends where it ends, whatever its strings hold; any other ends at the
    next closing tag.
    """
    stop = _body_end(text, start)
    if not text.startswith(CALL_END, stop):
        stop = text.find(CALL_END, start)
    return (len(text), len(text)) if stop < 0 else (stop, stop + len(CALL_END))


def _body_end(text: str, start: int) -> int:
    begin = _after_space(text, start)
    if text.startswith("<function=", begin):
        closing = _FUNCTION_END.search(text, begin)
        return closing.end() if closing else begin
    try:
        return _after_space(text, _DECODER.raw_decode(text, begin)[1])
    except (ValueError, RecursionError):
        return begin


def _read(body: str, tools: Sequence[ToolSpec], *, closed: bool) -> tuple[str, str]:
    """The name and the arguments that a body gives."""
    if not closed:
        raise _MalformedError(f"the call is not closed by {CALL_END}")
    return _read_tagged(body, tools) if body.startswith("<function=") else _read_json(body)


def _read_json(body: str) -> tuple[str, str]:
    value = _object(body, "the call")
    missing = " and ".join(key for key in ("name", "arguments") if key not in value)
    if missing:
        raise _MalformedError(f"the call has no {missing}")
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _MalformedError("the name of a call must be the name of a tool")
    raw = arguments.strip() if isinstance(arguments, str) else _members(body)["arguments"]
    _object(raw, "the arguments")
    return name, raw


def _read_tagged(body: str, tools: Sequence[ToolSpec]) -> tuple[str, str]:
    whole = _FUNCTION.fullmatch(body)
    if whole is None:
        raise _MalformedError("a call that begins with <function=…> must end with </function>")
    name, inner = whole.groups()
    if not _NAME.fullmatch(name):
        raise _MalformedError("the name of a call must be the name of a tool")
    schemas: dict[str, Any] = {}
    for tool in tools:
        if tool.name == name:
            schemas.update(tool.parameters.get("properties", {}))
    values: dict[str, object] = {}
    position = 0
    while parameter := _PARAMETER.match(inner, position):
        key, raw = parameter.groups()
        if key in values:
            raise _MalformedError(f"the parameter {echo(key)} is given twice")
        values[key] = typed_value(raw.removeprefix("\n").removesuffix("\n"), schemas.get(key, {}))
        position = parameter.end()
    if inner[position:].strip():
        place = body.index(inner) + position
        raise _MalformedError(f"expected <parameter=…>…</parameter> at character {place}")
    return name, json.dumps(values, ensure_ascii=False)


def _object(text: str, what: str) -> dict[str, Any]:
    """The JSON object that a text holds."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            reason = f"{what}: incomplete JSON, it stops at character {len(text)}"
        else:
            reason = f"{what}: not JSON, {error.msg} at character {error.pos}"
        raise _MalformedError(reason) from error
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"{what}: JSON that cannot be read, {error}") from error
    if not isinstance(value, dict):
        raise _MalformedError(f"{what} must be a JSON object")
    return cast("dict[str, Any]", value)


def _members(body: str) -> dict[str, str]:
    """The raw text of each value of a JSON object that is known to be valid."""
    raw: dict[str, str] = {}
    position = _after_space(body, 1)
    while body[position] != "}":
        key, position = _DECODER.raw_decode(body, position)
        colon = _after_space(body, position)
        start = _after_space(body, colon + 1)
        _, stop = _DECODER.raw_decode(body, start)
        raw[key] = body[start:stop]
        position = _after_space(body, stop)
        if body[position] == ",":
            position = _after_space(body, position + 1)
    return raw


def _after_space(text: str, position: int) -> int:
    space = _SPACE.match(text, position)
    return space.end() if space else position
