"""Forward passes without gradients: reading what is given, and speaking one token a row.

Reading runs flat over the tokens of many prefixes at once, each attending to its own past.
Speaking runs over rows that lie in slots. Both write the keys and values that they make.

Shapes: N tokens, B rows, H heads, K key-value heads, S states (heads of all three kinds), D head
size, E width, O outputs of a product, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forethought.policy.local.cached_attention import attend_to_past, attend_to_windows
from forethought.policy.local.decoder import Decoder, turn
from forethought.policy.local.fused import FusedLayer, FusedWeights
from forethought.policy.local.prefixes import Prefix
from forethought.policy.local.slots import Slots

SHARED_FROM = 3 * 2**18
"""Bytes of keys and values a layer, and thread, that a step must not read for it to pay that rows
share what they begin with: 40 to 90 microseconds, which is what it costs. Measured with one thread
and with two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens to read next after what a prefix holds. It must have room for them."""

    prefix: Prefix
    ids: Sequence[int]


class Inference:
    """One model as a sampler uses it, in `dtype` (norms, rotations and logits in float32)."""

    def __init__(
        self,
        model: nn.Module,
        decoder: Decoder,
        dtype: torch.dtype,
        *,
        shared_from: int = SHARED_FROM,
    ) -> None:
        """Share the weights of `model` where possible; `decoder` knows its sizes.

        What rows begin with is shared if a step then reads `shared_from` bytes a layer and thread
        less.
        """
        self.weights = FusedWeights(model, dtype)
        self.context = decoder.context
        self.device = decoder.device
        self._decoder = decoder
        self._dtype = dtype
        self._shared_from = shared_from
        self._heads, self._key_heads = decoder.heads, decoder.key_heads
        self._size = decoder.head_size

    def nothing_read(self) -> Tensor:
        """States [Y, 2, K, 0, D] of an empty prefix."""
        shape = (len(self._decoder.blocks), 2, self._key_heads, 0, self._size)
        return torch.zeros(shape, dtype=self._dtype, device=self.device)

    def pays_to_share(self, beginnings: Sequence[tuple[int, int]]) -> bool:
        """Whether rows that begin alike should share that: so many tokens, so many rows each.

        What that saves is reading: of little, it is less than what putting parts together costs.
        """
        held = 2 * self._key_heads * self._size * self._dtype.itemsize
        saved = held * sum(length * (rows - 1) for length, rows in beginnings)
        least = self._shared_from * torch.get_num_threads() * len(beginnings)
        return self.device.type == "cpu" and saved >= least

    @torch.inference_mode()
    def read(self, pieces: Sequence[Piece]) -> None:
        """Extend each piece's prefix by its tokens."""
        ids_N = self._tensor([token for piece in pieces for token in piece.ids])
        places = [
            place
            for piece in pieces
            for place in range(piece.prefix.length, piece.prefix.length + len(piece.ids))
        ]
        turns = self._rotations(self._tensor(places), max(places) + 1)
        hidden_NE = F.embedding(ids_N, self.weights.embedding_VE).float()
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            query_NHD, pair_N2KD = self._project(layer, hidden_NE, turns)
            _store(number, pieces, pair_N2KD)
            if number < last:  # nobody would look at what the last layer makes of them
                mixed_NHD = _attend(number, pieces, query_NHD)
                hidden_NE = _finish(layer, hidden_NE, mixed_NHD.flatten(1))
        for piece in pieces:
            piece.prefix.ids.extend(piece.ids)

    @torch.inference_mode()
    def speak(self, ids_B: Tensor, slots: Slots) -> Tensor:
        """Logits [B, V] after one more token a row, in the order of the slots' rows.

        Each token's keys and values are written after those of its row; there must be room.
        """
        windows, order, reach = slots.windows(), slots.order, slots.reach
        lengths_B = torch.cat([window.lengths_R for window in windows])
        turns = self._rotations(order.starts_B + lengths_B, reach + 1)
        hidden_BE = F.embedding(ids_B[order.from_B], self.weights.embedding_VE).float()
        for number, layer in enumerate(self.weights.layers):
            query_BHD, pair_B2KD = self._project(layer, hidden_BE, turns)
            for window in windows:
                window.write(number, pair_B2KD)
            mixed_BE = attend_to_windows(query_BHD, windows, order.sharing, number)
            hidden_BE = _finish(layer, hidden_BE, mixed_BE)
        slots.lengthen()
        return self.weights.head(self.weights.norm(hidden_BE[order.back_B])).float()

    def _project(
        self, layer: FusedLayer, hidden_NE: Tensor, turns: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Rotated queries [N, H, D], and rotated keys beside values [N, 2, K, D]."""
        H, K = self._heads, self._key_heads
        joined_NO = layer.query_key_value(layer.attention_norm(hidden_NE))
        states_NSD = joined_NO.float().view(len(joined_NO), H + 2 * K, self._size)
        turning = states_NSD[:, : H + K]
        if layer.head_norm is not None:
            turning.copy_(layer.head_norm(turning))
        turn(turning, *turns)
        states_NSD = states_NSD.to(self._dtype)
        return states_NSD[:, :H], states_NSD[:, H:].view(-1, 2, K, self._size)

    def _rotations(self, places_N: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """What `turn` needs to turn the heads of tokens at these places, [N, 1, D] each."""
        cos_TD, sin_TD = self._decoder.rotations(longest)
        sin_ND = sin_TD[places_N]
        sin_ND[:, : self._size // 2].neg_()
        return cos_TD[places_N, None], sin_ND[:, None]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self.device)


def _store(number: int, pieces: Sequence[Piece], pair_N2KD: Tensor) -> None:
    start = 0
    for piece in pieces:
        stop, past = start + len(piece.ids), piece.prefix.after(piece.prefix.root)
        states_2KLD = piece.prefix.states_Y2KLD[number, :, :, past : past + len(piece.ids)]
        states_2KLD.copy_(pair_N2KD[start:stop].permute(1, 2, 0, 3))
        start = stop


def _attend(number: int, pieces: Sequence[Piece], query_NHD: Tensor) -> Tensor:
    mixed_NHD = torch.empty_like(query_NHD)
    start = 0
    for piece in pieces:
        stop = start + len(piece.ids)
        mixed_NHD[start:stop] = attend_to_past(query_NHD[start:stop], piece.prefix, number)
        start = stop
    return mixed_NHD


def _finish(layer: FusedLayer, hidden_NE: Tensor, mixed_NE: Tensor) -> Tensor:
    """The rest of a layer, in place: output projection and feed-forward, each added on."""
    hidden_NE += layer.output(mixed_NE)
    gate_NF, up_NF = layer.gate_up(layer.feed_norm(hidden_NE)).chunk(2, -1)
    hidden_NE += layer.down(F.silu(gate_NF).mul_(up_NF))
    return hidden_NE
