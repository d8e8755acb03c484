"""The forward pass for training: flat over the tokens of a packing, without padding.

It goes through the same modules as `decoder.Decoder` and has the same values but for rounding.
Where a module is a linear map, with or without a low-rank adapter, its arithmetic is that of
`projections`; where it is more, the module is called.

Shapes: N tokens, M wanted tokens, S states (heads), D head size, E width, F feed-forward size.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from forethought.policy.local.attention import Heads, TurnedHeads, attend
from forethought.policy.local.decoder import Block, Decoder
from forethought.policy.local.linear import Arithmetic, Linear
from forethought.policy.local.packing import Packing
from forethought.policy.local.projections import (
    Embedding,
    GatedProjection,
    NormedProjections,
    Projection,
    RootMeanSquareNorm,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How to compute, where it changes nothing but speed, memory and rounding.

    With `again` every layer is computed once more on the way back, and only its input is kept.
    `look` is called at every layer and every portion of the head, there and back: what it raises
    ends the computation.
    """

    arithmetic: Arithmetic
    again: bool = False
    look: Callable[[], object] = lambda: None

    def looking(self, hidden_NE: Tensor) -> Tensor:
        """What a layer made, now that it has been looked around; as its gradient will be."""

        def look(gradient: Tensor) -> None:
            self.look()

        self.look()
        if hidden_NE.requires_grad:
            hidden_NE.register_hook(look)
        return hidden_NE


def packed_hidden(decoder: Decoder, packing: Packing, wanted_M: Tensor, effort: Effort) -> Tensor:
    """Hidden states [M, E] of the wanted places of a packing (any order, repeated or not)."""
    passing = _Pass(decoder, packing, effort)
    hidden_NE = Embedding.apply(packing.ids_N, decoder.embedding)
    if torch.is_grad_enabled() and not hidden_NE.requires_grad:
        # Gradients must come this far even where nothing learns from them: adapters sit above.
        hidden_NE.requires_grad_()
    last = len(decoder.blocks) - 1
    for number, block in enumerate(decoder.blocks):
        # Nobody looks at what the last layer makes of the others.
        wanted = wanted_M if number == last else None
        if effort.again and torch.is_grad_enabled():
            hidden_NE = checkpoint(passing.layer, block, hidden_NE, wanted, use_reentrant=False)
        else:
            hidden_NE = passing.layer(block, hidden_NE, wanted)
        hidden_NE = effort.looking(hidden_NE)
    return norm(decoder.norm, hidden_NE)


def norm(module: Any, inputs: Tensor) -> Tensor:
    """The norm that a module of the library stands for."""
    return RootMeanSquareNorm.apply(inputs, module.weight, module.variance_epsilon)


class _Pass:
    """One packing on its way through the layers."""

    def __init__(self, decoder: Decoder, packing: Packing, effort: Effort) -> None:
        self.packing, self.arithmetic = packing, effort.arithmetic
        self.heads = Heads(query=decoder.heads, key=decoder.key_heads, size=decoder.head_size)
        longest = packing.place_BT.shape[1]
        cos_TD, sin_TD = decoder.rotations(longest)
        turns_TC = torch.complex(cos_TD, sin_TD)[:, : decoder.head_size // 2]
        self.turns_N1C = turns_TC[packing.positions_N, None]

    def layer(self, block: Block, hidden_NE: Tensor, wanted_M: Tensor | None) -> Tensor:
        """Hidden states after a layer, of all tokens or of the wanted ones [M, E]."""
        states = self.normed(block.attention_norm, (block.query, block.key, block.value), hidden_NE)
        turned_NSD = TurnedHeads.apply(
            states.unflatten(1, (-1, self.heads.size)),
            *self.head_norms(block),
            self.turns_N1C,
            self.heads,
        )
        mixed_NE = attend(turned_NSD, self.heads, self.packing, self.arithmetic.dtype).flatten(1)
        if wanted_M is not None:
            # Like an index, but its gradient is made row by row and not number by number.
            mixed_NE, hidden_NE = (F.embedding(wanted_M, each) for each in (mixed_NE, hidden_NE))
        hidden_NE = self.projected(block.output, mixed_NE, hidden_NE)
        gate_up_NF = self.normed(block.feed_norm, (block.gate, block.up), hidden_NE)
        return self.fed(block.down, gate_up_NF, hidden_NE)

    def normed(self, module: Any, maps: Sequence[nn.Module], hidden_NE: Tensor) -> Tensor:
        """A norm, and linear maps of it side by side."""
        plain = [linear for linear in map(Linear.of, maps) if linear is not None]
        if len(plain) < len(maps):
            inputs_NE = norm(module, hidden_NE)
            return torch.cat([self.call(each, inputs_NE) for each in maps], dim=1)
        weights = [each for linear in plain for each in (linear.weight_OE, linear.bias_O)]
        return NormedProjections.apply(
            hidden_NE, module.weight, module.variance_epsilon, self.arithmetic, *weights
        )

    def projected(self, module: nn.Module, inputs_NF: Tensor, held_NE: Tensor) -> Tensor:
        """A linear map, added to what was held."""
        linear = Linear.of(module)
        if linear is None:
            return held_NE + self.call(module, inputs_NF)
        return Projection.apply(
            inputs_NF, linear.weight_OE, linear.bias_O, held_NE, self.arithmetic
        )

    def fed(self, module: nn.Module, gate_up_NF: Tensor, held_NE: Tensor) -> Tensor:
        """The gated product and its linear map, added to what was held."""
        linear = Linear.of(module)
        if linear is None or linear.bias_O is not None:
            gate_NF, up_NF = gate_up_NF.chunk(2, dim=1)
            return self.projected(module, F.silu(gate_NF) * up_NF, held_NE)
        return GatedProjection.apply(gate_up_NF, linear.weight_OE, held_NE, self.arithmetic)

    def head_norms(self, block: Block) -> tuple[Tensor | None, float]:
        """The norms of query and key heads, a row a head [H + K, D], and their epsilon."""
        query: Any = block.query_norm
        key: Any = block.key_norm
        if query is None or key is None:
            return None, 0.0
        rows = (query.weight.expand(self.heads.query, -1), key.weight.expand(self.heads.key, -1))
        return torch.cat(rows), query.variance_epsilon

    def call(self, module: nn.Module, inputs: Tensor) -> Tensor:
        """A module as the library has it, in this pass's arithmetic."""
        dtype = self.arithmetic.dtype
        halved = dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(inputs.device.type, dtype, enabled=halved):
            return module(inputs)
