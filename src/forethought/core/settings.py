"""The base of every settings model: frozen, every number finite, an unknown key an error."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError


class Settings(BaseModel):
    """Base of every section of a recipe. Each room defines its own sections.

    Numbers, truth values and text are not taken for one another.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_converted(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(given)
        if faults := [*_converted(given, found.__dict__, ())]:
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return found


def _converted(
    given: object, found: object, place: tuple[int | str, ...]
) -> Iterator[InitErrorDetails]:
    """Where one kind of plain value was made of another, also within lists and tables."""
    for key, one, other in _pairs(given, found):
        yield from _converted(one, other, (*place, key))
    kind, wrong = _kind(found), _kind(given)
    if kind and wrong and kind != wrong:
        said = {"kind": kind, "wrong": wrong}
        fault = PydanticCustomError("other_kind", "Input should be {kind}, not {wrong}", said)
        yield InitErrorDetails(type=fault, loc=place, input=given)


def _pairs(given: object, found: object) -> Iterator[tuple[int | str, object, object]]:
    """What two lists hold at each place, or two tables at each key that both have."""
    if isinstance(given, list | tuple) and isinstance(found, list | tuple):
        items = cast("list[object]", given), cast("list[object]", found)
        yield from zip(range(len(items[0])), *items, strict=False)
    elif isinstance(given, Mapping) and isinstance(found, Mapping):
        there = cast("Mapping[str, object]", found)
        for key, value in cast("Mapping[str, object]", given).items():
            if key in there:
                yield key, value, there[key]


def _kind(value: object) -> str:
    """In words; empty for what is no plain value."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else ""


Weight = Annotated[float, Field(ge=0, le=1e6)]
"""How much something counts: larger ones would drown all else, and overflow where they are
summed."""

Magnitude = Annotated[float, Field(gt=0, le=1e6)]
"""A positive number that is computed with: much larger ones overflow float32 on their way."""
