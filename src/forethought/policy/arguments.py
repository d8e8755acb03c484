"""A call's arguments against its tool's JSON schema.

Checks names and types of the top level only: what lies deeper, and whether a value makes sense,
is for the tool to say.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

_IS: dict[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_INTEGER = re.compile(r"[+-]?[0-9]+")


def accepted_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The JSON types that a schema lets through; empty when it leaves the type open.

    >>> accepted_types({"anyOf": [{"type": "integer"}, {"type": "null"}]})
    ('integer', 'null')
    """
    if "type" in schema:
        kinds = schema["type"]
        return (kinds,) if isinstance(kinds, str) else tuple(cast("list[str]", kinds))
    options = cast("list[Mapping[str, Any]]", schema.get("anyOf") or schema.get("oneOf") or [])
    found = [accepted_types(option) for option in options]
    return tuple(kind for kinds in found for kind in kinds) if all(found) else ()


def argument_fault(arguments: Mapping[str, object], parameters: Mapping[str, Any]) -> str:
    """What is wrong with `arguments` under the schema `parameters`; empty when nothing is.

    >>> number = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    >>> argument_fault({"n": "7"}, number)
    'n must be an integer'
    """
    properties: Mapping[str, Any] = parameters.get("properties", {})
    required: list[str] = parameters.get("required", [])
    faults = [f"the argument {key} is missing" for key in required if key not in arguments]
    unknown = [key for key in arguments if key not in properties]
    if properties and unknown and not parameters.get("additionalProperties"):
        known = ", ".join(properties)
        faults.append(f"unknown argument {echo(', '.join(unknown))}; it takes: {known}")
    for key, schema in properties.items():
        kinds = accepted_types(schema)
        if key in arguments and not _fits(arguments[key], kinds):
            faults.append(f"{key} must be {' or '.join(map(_with_article, kinds))}")
    return "; ".join(faults)


def typed_value(raw: str, schema: Mapping[str, Any]) -> object:
    """The value that bare text stands for, as the schema types it.

    The rule, in order: `null` or `None` is null where null is allowed; text stays text where a
    string is allowed or no type is given, so leading zeros survive; `true`/`True` and
    `false`/`False` are booleans; digits are integers; numbers, arrays and objects are JSON.
    Text that fits no accepted type is returned as it is, for `argument_fault` to name.

    >>> typed_value("False", {"type": ["boolean", "null"]}), typed_value("007", {"type": "string"})
    (False, '007')
    """
    kinds = accepted_types(schema)
    word = raw.strip()
    if "null" in kinds and word in {"null", "None"}:
        return None
    if not kinds or "string" in kinds:
        return raw
    value = _literal(word)
    return value if _fits(value, kinds) else raw


def echo(text: str) -> str:
    """At most 200 characters of a text that a model wrote."""
    return encodable(text if len(text) <= 200 else text[:199] + "…")


def encodable(text: str) -> str:
    r"""Text that UTF-8 can hold: a lone surrogate, which JSON may bring, is spelled out.

    >>> encodable("\ud800")
    '\\ud800'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _fits(value: object, kinds: tuple[str, ...]) -> bool:
    # A type that JSON schema does not know is the tool's own business.
    return not kinds or any(kind not in _IS or _IS[kind](value) for kind in kinds)


def _literal(word: str) -> object:
    if word.lower() in {"true", "false"}:
        return word.lower() == "true"
    try:
        return int(word) if _INTEGER.fullmatch(word) else json.loads(word)
    except (ValueError, RecursionError):
        return word


def _with_article(kind: str) -> str:
    if kind == "null":
        return kind
    return f"{'an' if kind[:1] in 'aeio' else 'a'} {kind}"
