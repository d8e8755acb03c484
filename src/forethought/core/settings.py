"""The base of every settings model: frozen, every number finite, an unknown key an error."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every section of a recipe. Each room defines its own sections."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
