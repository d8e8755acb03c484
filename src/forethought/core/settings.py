"""The base of every settings model: frozen, every number finite, an unknown key an error."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Base of every section of a recipe. Each room defines its own sections."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Weight = Annotated[float, Field(ge=0, le=1e6)]
"""How much something counts: larger ones would drown all else, and overflow where they are
summed."""

Magnitude = Annotated[float, Field(gt=0, le=1e6)]
"""A positive number that is computed with: much larger ones overflow float32 on their way."""
