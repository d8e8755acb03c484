"""Recorded conversations in other published shapes, as rows of OpenAI's form.

Three are known: ShareGPT, in which each entry says who it is `from` and its `value`, and calls are
entries of their own; content in typed parts with a `value`, thinking and calls among them; and the
items of OpenAI's responses, of which several make up one turn. Reading the rows that come out is
`openai_form`'s matter. Trees, trajectories in prose and calls in a system prompt are not covered.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from forethought.core.errors import RecipeError
from forethought.core.messages import ToolSpec
from forethought.policy.arguments import echo
from forethought.policy.openai_form import Row, tool_from_openai

_SPEAKERS = {"human": "user", "gpt": "assistant", "observation": "tool"}
_LISTS = ("messages", "conversations", "traj")
_THINKING = ("reasoning", "thinking")


def conversation(fields: Row, where: str) -> list[object]:
    """The messages that a record holds, one row a message.

    It holds them in `messages`, `conversations` or `traj` or, as a recorded response does, in the
    `input` of its `responses_create_params` and the `output` of its `response`. Raises
    `RecipeError` where it does not.
    """
    if said := _mapping(fields.get("response")).get("output"):
        return _of_items(_mapping(fields.get("responses_create_params")).get("input"), said)
    entries: object = next((fields[key] for key in _LISTS if fields.get(key) is not None), None)
    if not isinstance(entries, list) or not entries:
        raise RecipeError(
            f"{where}: needs a list of `messages` (or `conversations`); it has "
            f"{', '.join(fields) or 'nothing'}"
        )
    listed = cast("list[object]", entries)
    rows = [_row(each, f"{where}, message {number}") for number, each in enumerate(listed)]
    system = fields.get("system")
    if not system or _mapping(rows[0]).get("role") == "system":
        return rows
    return [{"role": "system", "content": system}, *rows]


def own_tools(fields: Row, where: str) -> tuple[ToolSpec, ...] | None:
    """The tools that a record lists in `tools`, as a list or as its text; None where it does not.

    Raises `RecipeError` for what is no tool.
    """
    request = _mapping(fields.get("responses_create_params"))
    listed: object = fields.get("tools", request.get("tools"))
    if isinstance(listed, str):
        listed = _from_text(listed, f"{where}, tools") if listed.strip() else None
    if listed is None:
        return None
    if not isinstance(listed, list):
        raise RecipeError(f"{where}: `tools` is no list: give a list of tools, or leave it out")
    entries = enumerate(cast("list[object]", listed))
    return tuple(tool_from_openai(each, f"{where}, tool {number}") for number, each in entries)


def _row(entry: object, place: str) -> object:
    """An entry of a list of messages in OpenAI's form; what is no entry stays as it is."""
    if not isinstance(entry, Mapping):
        return entry
    row = cast("Row", entry)
    if "from" in row and "role" not in row:
        return _of_sharegpt(row, place)
    parts = row.get("content")
    return _of_parts(row, cast("list[object]", parts), place) if isinstance(parts, list) else row


def _of_sharegpt(entry: Row, place: str) -> Row:
    speaker, value = entry["from"], entry.get("value")
    if speaker == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": _calls(value, place)}
    return {"role": _SPEAKERS.get(str(speaker), speaker), "content": value}


def _of_parts(row: Row, parts: Sequence[object], place: str) -> Row:
    """A row whose content comes in parts, with thinking and calls beside the text."""
    texts, thoughts, calls = list[object](), list[str](), list[object]()
    for part in parts:
        typed = _mapping(part)
        value = typed.get("value")
        if typed.get("type") in _THINKING and isinstance(value, str):
            thoughts.append(value)
        elif typed.get("type") == "tool_call":
            calls += _calls(value, place)
        elif typed.get("type") == "text" and "value" in typed:
            texts.append({"type": "text", "text": value})
        else:
            texts.append(part)
    changed: dict[str, Any] = {**row, "content": texts}
    if thoughts:
        changed["reasoning_content"] = "\n".join(thoughts)
    return changed | {"tool_calls": calls} if calls else changed


def _calls(value: object, place: str) -> list[object]:
    """The call, or the list of calls, that a text holds."""
    found = _from_text(value, f"{place}, call") if isinstance(value, str) else value
    return _listed(found) or [found]


def _from_text(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecipeError(
            f"{place}: {echo(text)!r} is not JSON ({error}): mend the record or leave it out"
        ) from error


def _of_items(given: object, said: object) -> list[object]:
    """The items of a request and of its response; what the assistant says in a row is one turn."""
    start = [{"role": "user", "content": given}] if isinstance(given, str) else _listed(given)
    rows = list[object]()
    for item in (*start, *_listed(said)):
        row = _of_item(cast("Row", item)) if isinstance(item, Mapping) else item
        if rows and _is_assistant(rows[-1]) and _is_assistant(row):
            row = _joined(cast("Row", rows.pop()), cast("Row", row))
        rows.append(row)
    return rows


def _of_item(item: Row) -> Row:
    match item.get("type", "message"):
        case "message":
            return item
        case "reasoning":
            parts = [*_listed(item.get("summary")), *_listed(item.get("content"))]
            texts = [_mapping(part).get("text") for part in parts]
            thoughts = "\n".join(text for text in texts if isinstance(text, str))
            return {"role": "assistant", "reasoning_content": thoughts}
        case "function_call":
            call = {"id": item.get("call_id"), "function": item}
            return {"role": "assistant", "tool_calls": [call]}
        case "function_call_output":
            content = item.get("output")
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        case kind:
            return {"role": kind}


def _joined(first: Row, second: Row) -> Row:
    both = (first, second)
    thoughts = [text for row in both if (text := row.get("reasoning_content"))]
    return {
        "role": "assistant",
        "content": [part for row in both for part in _parts(row.get("content"))],
        "reasoning_content": "\n".join(map(str, thoughts)),
        "tool_calls": [call for row in both for call in _listed(row.get("tool_calls"))],
    }


def _is_assistant(row: object) -> bool:
    return _mapping(row).get("role") == "assistant"


def _parts(content: object) -> list[object]:
    return [content] if isinstance(content, str) else _listed(content)


def _mapping(value: object) -> Row:
    return cast("Row", value) if isinstance(value, Mapping) else {}


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
