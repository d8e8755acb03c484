"""What a decoder-only transformer is made of: the modules of a Hugging Face model, by their use.

Covers the Llama, Qwen2 and Qwen3 families (SmolLM2 is a Llama). The weights stay where
`transformers` put them, so adapters, saving and loading are the library's; only the ways through
them are ours: `packed` for training, `inference` for sampling.

Not covered: sliding windows, mixtures of experts.

Shapes: T positions, V vocabulary, D head size, E width.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from forethought.core.errors import RecipeError

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One layer's modules."""

    attention_norm: nn.Module
    query: nn.Module
    key: nn.Module
    value: nn.Module
    output: nn.Module
    query_norm: nn.Module | None
    key_norm: nn.Module | None
    feed_norm: nn.Module
    gate: nn.Module
    up: nn.Module
    down: nn.Module

    @classmethod
    def of(cls, layer: Any) -> "Block":
        """The modules of one `transformers` layer."""
        attention, feed = layer.self_attn, layer.mlp
        return cls(
            attention_norm=layer.input_layernorm,
            query=attention.q_proj,
            key=attention.k_proj,
            value=attention.v_proj,
            output=attention.o_proj,
            query_norm=getattr(attention, "q_norm", None),
            key_norm=getattr(attention, "k_norm", None),
            feed_norm=layer.post_attention_layernorm,
            gate=feed.gate_proj,
            up=feed.up_proj,
            down=feed.down_proj,
        )


class Decoder:
    """The modules and sizes of one model, and its rotations."""

    def __init__(self, model: nn.Module) -> None:
        """Read the modules of a (possibly adapted) causal language model of a known family."""
        whole = unwrapped(model)
        config = whole.config
        _refuse_unknown(config)
        self.heads: int = config.num_attention_heads
        self.key_heads: int = config.num_key_value_heads
        self.head_size: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.context: int = config.max_position_embeddings
        self._embed: nn.Embedding = whole.model.embed_tokens
        self.blocks = [Block.of(layer) for layer in whole.model.layers]
        self.norm: nn.Module = whole.model.norm
        self.head: nn.Module = whole.lm_head
        self._rotary: nn.Module = whole.model.rotary_emb
        self._cos_TD, self._sin_TD = self._rotate_places(min(self.context, 4096))

    @property
    def embedding(self) -> Tensor:
        """The table of the tokens' vectors, [V, E]."""
        return self._embed.weight

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._embed.weight.device

    def rotations(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the first `length` positions, [T, D] each."""
        held = self._cos_TD.shape[0]
        if length > held:
            self._cos_TD, self._sin_TD = self._rotate_places(
                max(length, min(2 * held, self.context))
            )
        return self._cos_TD[:length], self._sin_TD[:length]

    def _rotate_places(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, D], by the model's own rule for rotary positions."""
        # Sampling makes tables that training uses too: they must not be inference tensors.
        with torch.inference_mode(False), torch.no_grad():
            places_1T = torch.arange(length, device=self.device)[None]
            cos_1TD, sin_1TD = self._rotary(self._embed.weight[:1, :1], places_1T)
        return cos_1TD[0], sin_1TD[0]


def unwrapped(model: nn.Module) -> Any:
    """The `transformers` model itself, without the adapters' frame."""
    whole: Any = model
    return whole.get_base_model() if hasattr(whole, "get_base_model") else whole


def _refuse_unknown(config: Any) -> None:
    """Raise `RecipeError` for what the forward passes here would compute wrongly."""
    if config.model_type not in FAMILIES:
        raise RecipeError(
            f"model: architecture {config.model_type!r} is not one of {', '.join(FAMILIES)}; "
            "choose a model of a supported family"
        )
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise RecipeError(
            f"model: sliding windows (of {config.sliding_window} tokens) are not supported; choose "
            "a model whose layers all attend to everything before"
        )
    if config.hidden_act != "silu":
        raise RecipeError(
            f"model: the activation {config.hidden_act!r} is not supported; choose a model with "
            "'silu'"
        )


def turn(states: Tensor, cos: Tensor, signed_sin: Tensor) -> None:
    """Rotary position embedding in the half-split layout (RoFormer, arXiv 2104.09864), in place.

    The sines of the first half are given with the other sign.
    """
    other_half_first = states.roll(states.shape[-1] // 2, -1)
    states.mul_(cos).addcmul_(other_half_first, signed_sin)
