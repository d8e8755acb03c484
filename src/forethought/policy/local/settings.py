"""Which model to train: fresh from random weights, a Hugging Face model, or a GGUF file."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.policy.remote import RemoteSettings

FormatName = Literal["hermes", "hermes-thinking", "compact", "plain"]


class FreshModel(Settings):
    """A small transformer from random weights, with a tokenizer made from its own data."""

    type: Literal["fresh"]
    architecture: Literal["qwen3", "llama"] = "qwen3"
    """Whose layers to use."""
    width: int = Field(default=128, ge=1, le=16_384)
    """Hidden size."""
    layers: int = Field(default=4, ge=1, le=256)
    """Transformer layers."""
    heads: int = Field(default=4, ge=1, le=256)
    """Attention heads."""
    feed: int = Field(default=352, ge=1, le=131_072)
    """Feed-forward size."""
    vocabulary: int = Field(default=640, ge=320, le=1_000_000)
    """Tokens of its tokenizer, at most; bytes and control tokens alone take 280."""
    context: int = Field(default=512, ge=1, le=1_000_000)
    """Positions that it can attend to."""
    format: FormatName = "compact"
    """Chat format."""

    @model_validator(mode="after")
    def _refuse_uneven_heads(self) -> Self:
        if self.width % self.heads:
            raise RecipeError(
                f"model.width = {self.width}: it must be a multiple of model.heads = {self.heads}"
            )
        size = self.width // self.heads
        if size % 2:
            raise RecipeError(
                f"model.width = {self.width}, model.heads = {self.heads}: each head is {size} "
                "wide, and rotary positions turn pairs of numbers; make it even"
            )
        return self


class PretrainedModel(Settings):
    """A model of the Hugging Face kind: a local folder, or a name on the hub."""

    type: Literal["pretrained"]
    name: str
    """Folder, or hub name."""
    format: FormatName = "hermes"
    """Chat format."""
    lora_rank: NonNegativeInt = 0
    """Rank of the adapters that are trained; 0 trains every weight."""
    lora_alpha: PositiveInt = 32
    """Scale of the adapters (only with a rank)."""


class GGUFModel(Settings):
    """A GGUF file, converted once into an ordinary Hugging Face folder and used from there."""

    type: Literal["gguf"]
    file: str
    """Path of the file, or `package:NAME` for the one that an installed Python package carries."""
    folder: str
    """Where the converted model is kept."""
    format: FormatName = "hermes"
    """Chat format."""
    lora_rank: NonNegativeInt = 0
    """Rank of the adapters that are trained; 0 trains every weight."""
    lora_alpha: PositiveInt = 32
    """Scale of the adapters (only with a rank)."""


LocalModelSettings = FreshModel | PretrainedModel | GGUFModel
"""The models that can be trained here."""

ModelSettings = Annotated[LocalModelSettings | RemoteSettings, Field(discriminator="type")]
