"""Overrides: single keys of a recipe, given on the command line as `--rl.steps 20`.

Whether a key exists and a value fits is not asked here: the recipe is checked as a whole.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from forethought.core.errors import RecipeError

USE = "give a key and a value, such as --rl.steps 20"
LONGEST_KEY = 200
"""Characters of a key at most."""
LONGEST_PLACE = 9
"""Digits of a place in a list at most."""
DEEPEST = 16
"""Parts of a key at most; no key of a recipe has as many."""


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
        _refuse_unreadable(word)
        key, equals, text = word.partition("=")
        if not key.startswith("--"):
            raise RecipeError(f"{word}: this word belongs to no key; {USE}")
        value = text if equals else next(rest, None)
        if value is None or (value.startswith("--") and not equals):
            raise RecipeError(f"{key}: its value is missing; {USE}")
        if "" in key.removeprefix("--").split("."):
            raise RecipeError(f"{key}: a part of this key is empty; {USE}")
        _refuse_unreadable(value)
        yield key.removeprefix("--").replace("-", "_"), value


def _refuse_unreadable(word: str) -> None:
    """Raise `RecipeError` for what is no text, and for a key that no recipe can hold."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(f"{ascii(word)[:60]}: this word is not UTF-8; {USE}") from error
    key = word.partition("=")[0]
    if key.startswith("--") and (key.count(".") >= DEEPEST or len(key) > LONGEST_KEY):
        raise RecipeError(f"{key[:60]}…: there is no key as long as this; {USE}")


def _value(text: str) -> object:
    """What `text` means in TOML; plain text where it means nothing, so that quotes are optional."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, a number too long, lists too deep
        return text
    return found["value"] if len(found) == 1 else text


def _replaced(node: object, path: Sequence[str], value: object, key: str) -> Any:
    """`node` with `value` at the end of `path`; tables on the way are made where they lack."""
    if not path:
        return value
    part, *rest = path
    if isinstance(node, list | tuple):
        items = list(cast("Sequence[object]", node))
        if not part.isdecimal() or len(part) > LONGEST_PLACE or int(part) >= len(items):
            place = part.replace("_", "-")[:20]
            raise RecipeError(
                f"--{key[:60]}: there is no place {place}; the list has {len(items)}, counted "
                "from 0"
            )
        items[int(part)] = _replaced(items[int(part)], rest, value, key)
        return items
    table = cast("dict[str, object]", node) if isinstance(node, dict) else {}
    return {**table, part: _replaced(table.get(part), rest, value, key)}
