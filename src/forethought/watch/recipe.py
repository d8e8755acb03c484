"""A run's recipe as it stands in the run: it may be of another version, or damaged."""

from collections.abc import Mapping
from typing import Any, cast


def table(recipe: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """The table at `keys`, empty where there is none. Raises `ValueError` for another value.

    >>> table({"rl": {"reward": {"variant": "gated"}}}, "rl", "reward")
    {'variant': 'gated'}
    """
    found = recipe
    for place, key in enumerate(keys, start=1):
        inner: object = found.get(key, {})
        if not isinstance(inner, Mapping):
            raise ValueError(f"{'.'.join(keys[:place])} = {inner!r} is no table")  # noqa: TRY004
        found = cast("Mapping[str, Any]", inner)
    return found
