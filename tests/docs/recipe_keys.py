"""Every key of a recipe, read from the settings models, as the rows of the guide's tables.

    python tests/docs/recipe_keys.py docs/guides/recipe.md

writes the tables of the guide again. Headings and prose stay those of a person.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from forethought.app.recipe import Recipe
from forethought.core.settings import Settings

TABLE = re.compile(r"(?<=\|---\|---\|---\|\n)(?:\|.*\n)*")


def refreshed(guide: str) -> str:
    """The guide with every table as the settings models have it today."""
    found = tables(Recipe)
    head, *parts = guide.split("\n## ")
    return "\n## ".join([head, *(_refreshed_part(part, found) for part in parts)])


def _refreshed_part(part: str, found: dict[str, list[str]]) -> str:
    table = "".join(f"{row}\n" for row in found.get(part.partition("\n")[0], ()))
    return TABLE.sub(lambda _: table, part)


def tables(recipe: type[Settings]) -> dict[str, list[str]]:
    """The rows of each table by its heading; a model that several sections share has one table."""
    headings: dict[type[Settings], list[str]] = {}
    for heading, model in sections(recipe):
        headings.setdefault(model, []).append(heading)
    return {" and ".join(found): rows(model) for model, found in headings.items()}


def sections(model: type[Settings], name: str = "") -> Iterator[tuple[str, type[Settings]]]:
    """The sections inside `model`, in the order of its fields, each before those inside it."""
    for key, field in model.model_fields.items():
        variants = list(nested(field.annotation))
        path = f"{name}.{key}".removeprefix(".")
        for variant in variants:
            chosen = f' with `type = "{variant_of(variant)}"`' if len(variants) > 1 else ""
            yield f"`{path}`{chosen}", variant
            yield from sections(variant, path)


def nested(annotation: object) -> Iterator[type[Settings]]:
    """The settings models that a key of this type may hold: none for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    elif get_origin(annotation) is Annotated:
        yield from nested(get_args(annotation)[0])
    else:
        for part in get_args(annotation):
            yield from nested(part)


def rows(model: type[BaseModel]) -> list[str]:
    """The rows of a table: each plain key, its default and choices, and its meaning."""
    return [
        f"| `{key}` | {shown_default(field)} | {' '.join((field.description or '').split())} |"
        for key, field in model.model_fields.items()
        if (key != "type" or field.description) and not list(nested(field.annotation))
    ]


def variant_of(model: type[BaseModel]) -> str:
    """The value of `type` that chooses this model."""
    return str(get_args(model.model_fields["type"].annotation)[0])


def shown_default(field: FieldInfo) -> str:
    """A default, and what else may be chosen."""
    default = field.get_default(call_default_factory=True)
    others = [choice for choice in choices(field.annotation) if choice != default]
    more = f" (or {', '.join(f'`{choice}`' for choice in others)})" if others else ""
    return written(default) + more


def choices(annotation: object) -> tuple[object, ...]:
    """The values of a `Literal`, also of one that may be left open."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(choice for part in get_args(annotation) for choice in choices(part))


def written(default: object) -> str:
    """A default as the guide writes it."""
    if default is PydanticUndefined:
        return "needed"
    if default is None:
        return "none"
    if isinstance(default, dict):
        return ", ".join(f"`{name}` {value}" for name, value in default.items())
    if isinstance(default, tuple):
        return ", ".join(f"`{value}`" for value in default) or "none"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else "empty"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(refreshed(page.read_text()))
