"""Reads the arguments of a call to the Python tool, or says what is wrong with them."""

import json
from typing import Any, cast

_MOST_BYTES = 256 * 1024
_ECHO = 200


class ArgumentError(ValueError):
    """The arguments are not what the tool takes; the message is for the model."""


def read_code(arguments: str) -> str:
    """The program in `{"code": "..."}`. Raises `ArgumentError`.

    >>> read_code('{"code": "print(1)"}')
    'print(1)'
    """
    value = _parse(arguments)
    if not isinstance(value, dict):
        raise ArgumentError(_wrong(f"got {_named(value)}", arguments))
    given = cast("dict[str, Any]", value)
    if "code" not in given:
        raise ArgumentError(_wrong('"code" is missing', arguments))
    if len(given) > 1:
        raise ArgumentError(_wrong("there are other keys", arguments))
    code = given["code"]
    if not isinstance(code, str):
        raise ArgumentError(_wrong(f'"code" is {_named(code)}', arguments))
    return checked_code(code)


def _parse(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(_wrong(f"this is not JSON: {error}", arguments)) from error


def checked_code(code: str) -> str:
    """The program, if it is text that can be run. Raises `ArgumentError`."""
    if "\0" in code:
        raise ArgumentError("The program contains a NUL character.")
    try:
        size = len(code.encode())
    except UnicodeEncodeError as error:
        raise ArgumentError("The program contains half of a surrogate pair.") from error
    if size > _MOST_BYTES:
        raise ArgumentError(f"The program has {size} bytes; {_MOST_BYTES} is the most.")
    return code


def _wrong(what: str, arguments: str) -> str:
    wanted = 'The arguments must be a JSON object with exactly one key, "code", a string'
    return f"{wanted}; {what}\n{arguments[:_ECHO]}"


def _named(value: object) -> str:
    names: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")
