"""Overrides: single keys of a recipe, given on the command line as `--rl.steps 20`.

Whether a key exists and a value fits is not asked here: the recipe is checked as a whole.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from forethought.core.errors import RecipeError

USE = "give a key and a value, such as --rl.steps 20"


def overridden(tree: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A recipe's plain values with `overrides` put in, the later over the earlier.

    Raises `RecipeError` for words that are not a key and a value, and for a place in a list that
    there is not.

    >>> overridden({"rl": {"steps": 4, "seed": 1}}, ["--rl.steps", "20", "--name=a.b"])
    {'rl': {'steps': 20, 'seed': 1}, 'name': 'a.b'}
    """
    for key, text in _pairs(overrides):
        tree = _replaced(tree, key.split("."), _value(text), key)
    return dict(tree)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--key value` and `--key=value`, dashes within a key being underscores."""
    rest = iter(words)
    for word in rest:
        key, equals, text = word.partition("=")
        if not key.startswith("--"):
            raise RecipeError(f"{word}: this word belongs to no key; {USE}")
        value = text if equals else next(rest, None)
        if value is None or (value.startswith("--") and not equals):
            raise RecipeError(f"{key}: its value is missing; {USE}")
        yield key.removeprefix("--").replace("-", "_"), value


def _value(text: str) -> object:
    """What `text` means in TOML; plain text where it means nothing, so that quotes are optional."""
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if len(found) == 1 else text


def _replaced(node: object, path: Sequence[str], value: object, key: str) -> Any:
    """`node` with `value` at the end of `path`; tables on the way are made where they lack."""
    if not path:
        return value
    part, *rest = path
    if isinstance(node, list | tuple):
        items = list(cast("Sequence[object]", node))
        if not part.isdecimal() or int(part) >= len(items):
            raise RecipeError(
                f"--{key}: there is no place {part}; the list has {len(items)}, counted from 0"
            )
        items[int(part)] = _replaced(items[int(part)], rest, value, key)
        return items
    table = cast("dict[str, object]", node) if isinstance(node, dict) else {}
    return {**table, part: _replaced(table.get(part), rest, value, key)}
