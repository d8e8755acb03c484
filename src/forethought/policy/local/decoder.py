"""One forward pass for decoder-only transformers, over the modules of a Hugging Face model.

Covers the Llama, Qwen2 and Qwen3 families (SmolLM2 is a Llama). The weights stay where
`transformers` put them, so adapters, saving and loading are the library's; only the way through
them is ours: no per-call mask building, and one key-value cache that rows can be picked from.

Not covered: sliding windows, mixtures of experts, left padding. Rows are padded on the right.

Shapes: B rows, T positions, L cache places, H heads, K key-value heads, D head size, E width,
V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forethought.core.errors import RecipeError

FAMILIES = ("llama", "qwen2", "qwen3")
CACHE_BLOCK = 128


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


@dataclass(slots=True, kw_only=True)
class Cache:
    """Keys and values of every layer, [B, K, L, D] each; `grow` adds places, `pick` keeps rows."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def places(self) -> int:
        """How many positions each row can hold."""
        return self.keys[0].shape[2]

    def grow(self, places: int) -> None:
        """Make room for at least `places` positions."""
        extra = places - self.places
        if extra > 0:
            extra = -(-extra // CACHE_BLOCK) * CACHE_BLOCK
            self.keys = [F.pad(key, (0, 0, 0, extra)) for key in self.keys]
            self.values = [F.pad(value, (0, 0, 0, extra)) for value in self.values]

    def pick(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may be picked more than once."""
        self.keys = [key.index_select(0, rows) for key in self.keys]
        self.values = [value.index_select(0, rows) for value in self.values]


class Decoder:
    """The forward pass of one model: whole rows for training and prefill, or one token a row."""

    def __init__(self, model: nn.Module) -> None:
        """Read the modules of a (possibly adapted) causal language model of a known family."""
        whole: Any = model
        if hasattr(whole, "get_base_model"):
            whole = whole.get_base_model()
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

    def logits(self, hidden_E: Tensor) -> Tensor:
        """Float32 logits [..., V] of hidden states [..., E]."""
        return self.head(hidden_E).float()

    def hidden(self, ids_BT: Tensor, cache: Cache | None = None) -> Tensor:
        """Hidden states [B, T, E] of whole rows; fills `cache` when given (it must be empty)."""
        B, T = ids_BT.shape
        hidden_BTE = self._embed(ids_BT)
        cos_TD, sin_TD = self.rotations(T)
        for block in self.blocks:
            query, key, value = self._project(block, hidden_BTE, cos_TD, sin_TD)
            if cache is not None:
                cache.keys.append(key)
                cache.values.append(value)
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=T > 1, enable_gqa=self.heads != self.key_heads
            )
            hidden_BTE = self._finish(block, hidden_BTE, mixed.transpose(1, 2).reshape(B, T, -1))
        return self.norm(hidden_BTE)

    def step(self, ids_B: Tensor, positions_B: Tensor, cache: Cache) -> Tensor:
        """Hidden states [B, E] after one more token a row, written at its own position."""
        B = ids_B.shape[0]
        longest = int(positions_B.max()) + 1
        cache.grow(longest)
        cos_TD, sin_TD = self.rotations(longest)
        cos_B1D, sin_B1D = cos_TD[positions_B][:, None], sin_TD[positions_B][:, None]
        places_L = torch.arange(longest, device=ids_B.device)
        seen_B11L = (places_L[None] <= positions_B[:, None])[:, None, None]
        rows_B = torch.arange(B, device=ids_B.device)
        hidden_B1E = self._embed(ids_B)[:, None]
        for number, block in enumerate(self.blocks):
            query, key, value = self._project(block, hidden_B1E, cos_B1D, sin_B1D)
            cache.keys[number][rows_B, :, positions_B] = key[:, :, 0]
            cache.values[number][rows_B, :, positions_B] = value[:, :, 0]
            mixed = F.scaled_dot_product_attention(
                query,
                cache.keys[number][:, :, :longest],
                cache.values[number][:, :, :longest],
                attn_mask=seen_B11L,
                enable_gqa=self.heads != self.key_heads,
            )
            hidden_B1E = self._finish(block, hidden_B1E, mixed.reshape(B, 1, -1))
        return self.norm(hidden_B1E)[:, 0]

    def _project(
        self, block: Block, hidden_BTE: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [B, H, T, D], rotated keys and values [B, K, T, D]."""
        B, T, _ = hidden_BTE.shape
        normed = block.attention_norm(hidden_BTE)
        query = block.query(normed).view(B, T, self.heads, self.head_size)
        key = block.key(normed).view(B, T, self.key_heads, self.head_size)
        value = block.value(normed).view(B, T, self.key_heads, self.head_size)
        if block.query_norm is not None and block.key_norm is not None:
            query, key = block.query_norm(query), block.key_norm(key)
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def _finish(self, block: Block, hidden_BTE: Tensor, mixed_BTE: Tensor) -> Tensor:
        """The rest of a layer: output projection and feed-forward, each added to its input."""
        hidden_BTE = hidden_BTE + block.output(mixed_BTE)
        normed = block.feed_norm(hidden_BTE)
        return hidden_BTE + block.down(F.silu(block.gate(normed)) * block.up(normed))

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


def _refuse_unknown(config: Any) -> None:
    """Raise `RecipeError` for what this forward pass would compute wrongly."""
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


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in the half-split layout (RoFormer, arXiv 2104.09864)."""
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * cos + turned * sin
