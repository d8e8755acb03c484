"""Problems from a file of JSON lines or of one JSON list, plain or compressed with gzip (`.gz`)."""

import gzip
import json
import math
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem

_KNOWN = ("id", "prompt", "answer", "domain")
_DEEPEST = 50
"""Lists and objects within one another that a row may hold."""


def file_problems(path: Path) -> list[Problem]:
    """A user's own problems: one JSON object a line.

    `prompt` and `answer` are needed (`answer` may be a number), `id` and `domain` are not; every
    other key goes into `data`, where demonstrators find a `plan` and a `program`.

    Raises `RecipeError` naming file and row for what cannot be read, and for an id used twice.
    """
    problems: dict[str, Problem] = {}
    for row, fields in read_rows(path):
        problem = _problem(path, row, fields)
        if problem.id in problems:
            raise RecipeError(f"{path}, row {row}: the id {problem.id!r} is taken: make ids unique")
        problems[problem.id] = problem
    return list(problems.values())


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON object of each row that is not blank, with its number from 1.

    Only a line feed ends a row: other separators, such as U+2028, may stand inside a string. A file
    that begins with `[` is one list, and each of its elements a row.
    Raises `RecipeError` for a file that is missing, unreadable or without rows, and for a row
    that is not a JSON object.
    """
    try:
        there = path.is_file()
    except OSError as error:  # a folder that may not be entered, a name that is too long
        raise _unreadable(path, error) from error
    if not there:
        raise RecipeError(f"{path} is no file: give the path of a file of JSON lines")
    empty = True
    for row, fields in _rows(path):
        empty = False
        yield row, fields
    if empty:
        raise RecipeError(f"{path} holds no rows: give a file with one JSON object a line")


def text_field(path: Path, row: int, fields: Mapping[str, Any], name: str) -> str:
    """The text in field `name`, trimmed; it must be there and not be blank."""
    value = fields.get(name)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise RecipeError(f"{path}, row {row}: {name!r} must be text, got {_shown(value)}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines, first = _lines(path), True
    for row, line in enumerate(lines, start=1):
        if first and line.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
            above = b"\n" * (row - 1)  # so that a fault is found in the line that it names
            yield from _elements(path, b"".join([above, line, *lines]))
            return
        if line.strip():
            first = False
            yield row, _fields(path, f"row {row}", _parsed(path, f"row {row}", line))


def _elements(path: Path, text: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    listed = cast("list[object]", _parsed(path, "read as one list since it begins with [", text))
    for row, value in enumerate(listed, start=1):
        yield row, _fields(path, f"row {row}", value)


def _lines(path: Path) -> Iterator[bytes]:
    compressed = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if compressed else path.open("rb") as stream:
            yield from stream
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> RecipeError:
    return RecipeError(f"{path} cannot be read ({error}): give a readable file")


def _parsed(path: Path, place: str, text: bytes) -> object:
    try:
        return json.loads(text.decode("utf-8-sig"))
    except ValueError as error:
        raise RecipeError(f"{path}, {place}: not JSON ({error}): mend it") from error
    except RecursionError as error:
        raise _too_deep(path, place) from error


def _fields(path: Path, place: str, value: object) -> dict[str, Any]:
    if _depth(value) > _DEEPEST:
        raise _too_deep(path, place)
    try:
        # Half of a surrogate pair, which JSON can escape, is no text: it cannot be written again.
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RecipeError(
            f"{path}, {place}: holds half of a surrogate pair: mend the row"
        ) from error
    if not isinstance(value, dict):
        raise RecipeError(f"{path}, {place}: needs a JSON object, got {_shown(value)}")
    return cast("dict[str, Any]", value)


def _too_deep(path: Path, place: str) -> RecipeError:
    return RecipeError(
        f"{path}, {place}: nested deeper than {_DEEPEST} lists and objects: flatten the row"
    )


def _depth(value: object) -> int:
    """How many lists and objects lie around the deepest value."""
    deep, level = -1, [value]
    while level:
        level = [part for each in level for part in _contents(each)]
        deep += 1
    return deep


def _contents(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return cast("list[object]", value) if isinstance(value, list) else []


def _problem(path: Path, row: int, fields: Mapping[str, Any]) -> Problem:
    answer = fields.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        if not math.isfinite(answer):
            raise RecipeError(f"{path}, row {row}: 'answer' is {answer}: give a finite number")
        fields = {**fields, "answer": str(answer)}
    fields = {"id": f"{path.name.partition('.')[0]}-{row}", "domain": "general", **fields}
    return Problem(
        id=text_field(path, row, fields, "id"),
        prompt=text_field(path, row, fields, "prompt"),
        answer=text_field(path, row, fields, "answer"),
        domain=text_field(path, row, fields, "domain"),
        data={name: value for name, value in fields.items() if name not in _KNOWN},
    )


def _shown(value: object) -> str:
    return "nothing" if value is None else json.dumps(value)[:60]
