"""The base of every settings model: frozen, and an unknown key is an error."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Base of every section of a recipe. Each room defines its own sections."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
