"""Forward passes without gradients: reading what is given, and speaking one token a row.

Reading runs flat over the tokens of many prefixes at once, each attending to its own past.
Speaking runs over rows that lie in slots. Both write the keys and values that they make.

Shapes: N tokens, B rows, H heads, K key-value heads, D head size, E width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forethought.policy.local.decoder import Decoder, rotate
from forethought.policy.local.fused import FusedLayer, FusedWeights
from forethought.policy.local.prefixes import Prefix, Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Tokens to read next after what a prefix holds. It must have room for them."""

    prefix: Prefix
    ids: Sequence[int]


class Inference:
    """One model as a sampler uses it, in `dtype` (norms, rotations and logits in float32)."""

    def __init__(self, model: nn.Module, decoder: Decoder, dtype: torch.dtype) -> None:
        """Share the weights of `model` where possible; `decoder` knows its sizes."""
        self.weights = FusedWeights(model, dtype)
        self.context = decoder.context
        self.device = decoder.device
        self._decoder = decoder
        self._dtype = dtype
        self._heads, self._key_heads = decoder.heads, decoder.key_heads
        self._size = decoder.head_size

    def nothing_read(self) -> Tensor:
        """States [Y, 2, K, 0, D] of an empty prefix."""
        shape = (len(self._decoder.blocks), 2, self._key_heads, 0, self._size)
        return torch.zeros(shape, dtype=self._dtype, device=self.device)

    @torch.inference_mode()
    def read(self, pieces: Sequence[Piece]) -> None:
        """Extend each piece's prefix by its tokens."""
        ids_N = self._tensor([token for piece in pieces for token in piece.ids])
        places = [
            place
            for piece in pieces
            for place in range(piece.prefix.length, piece.prefix.length + len(piece.ids))
        ]
        cos_ND, sin_ND = self._rotations(self._tensor(places), max(places) + 1)
        hidden_NE = F.embedding(ids_N, self.weights.embedding_VE).float()
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            query_NHD, pair_2NKD = self._project(layer, hidden_NE, cos_ND, sin_ND)
            _store(number, pieces, pair_2NKD)
            if number < last:  # nobody would look at what the last layer makes of them
                mixed_NHD = _attend(number, pieces, query_NHD)
                hidden_NE = _finish(layer, hidden_NE, mixed_NHD.flatten(1))
        for piece in pieces:
            piece.prefix.ids.extend(piece.ids)

    @torch.inference_mode()
    def speak(self, ids_B: Tensor, places_B: Tensor, longest: int, slots: Slots) -> Tensor:
        """Logits [B, V] after one more token a row, row n being in slot n.

        Each token is written at its own place; `longest` is the largest place plus one.
        """
        B = ids_B.shape[0]
        cos_BD, sin_BD = self._rotations(places_B, longest)
        seen_BL = torch.arange(longest, device=self.device) <= places_B[:, None]
        rows_B = torch.arange(B, device=self.device)
        hidden_BE = F.embedding(ids_B, self.weights.embedding_VE).float()
        for number, layer in enumerate(self.weights.layers):
            query_BHD, pair_2BKD = self._project(layer, hidden_BE, cos_BD, sin_BD)
            states_2BKLD = slots.states_Y2BKLD[number]
            states_2BKLD[:, rows_B, :, places_B] = pair_2BKD.transpose(0, 1)
            keys_BKLD, values_BKLD = states_2BKLD[:, :B, :, :longest]
            mixed_BE = attend(query_BHD, keys_BKLD, values_BKLD, seen_BL)
            hidden_BE = _finish(layer, hidden_BE, mixed_BE)
        return self.weights.head(self.weights.norm(hidden_BE)).float()

    def _project(
        self, layer: FusedLayer, hidden_NE: Tensor, cos_ND: Tensor, sin_ND: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotated queries [N, H, D], and rotated keys beside values [2, N, K, D]."""
        H, K = self._heads, self._key_heads
        N = hidden_NE.shape[0]
        joined = layer.query_key_value(layer.attention_norm(hidden_NE))
        joined = joined.view(N, H + 2 * K, self._size)
        turning = joined[:, : H + K]
        if layer.head_norm is not None:
            turning = layer.head_norm(turning)
        turned = rotate(turning, cos_ND[:, None], sin_ND[:, None]).to(self._dtype)
        return turned[:, :H], torch.stack((turned[:, H:], joined[:, H + K :]))

    def _rotations(self, places_N: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        cos_TD, sin_TD = self._decoder.rotations(longest)
        return cos_TD[places_N], sin_TD[places_N]

    def _tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=self.device)


def attend(query_BHD: Tensor, keys_BKLD: Tensor, values_BKLD: Tensor, seen_BL: Tensor) -> Tensor:
    """Attention of one query a row, [B, H * D].

    Heads that share keys and values go in as if they were places of one head: what they share is
    then read from memory once.
    """
    B, H, D = query_BHD.shape
    K = keys_BKLD.shape[1]
    mixed = F.scaled_dot_product_attention(
        query_BHD.reshape(B, K, H // K, D),
        keys_BKLD,
        values_BKLD,
        attn_mask=seen_BL[:, None, None],
    )
    return mixed.reshape(B, H * D)


def _store(number: int, pieces: Sequence[Piece], pair_2NKD: Tensor) -> None:
    start = 0
    for piece in pieces:
        stop, past = start + len(piece.ids), piece.prefix.length
        states_2KLD = piece.prefix.states_Y2KLD[number, :, :, past : past + len(piece.ids)]
        states_2KLD.copy_(pair_2NKD[:, start:stop].transpose(1, 2))
        start = stop


def _attend(number: int, pieces: Sequence[Piece], query_NHD: Tensor) -> Tensor:
    mixed_NHD = torch.empty_like(query_NHD)
    start = 0
    for piece in pieces:
        stop = start + len(piece.ids)
        states_2KLD = piece.prefix.states_Y2KLD[number, :, :, : piece.prefix.length + stop - start]
        mixed_HTD = _attend_to_past(query_NHD[start:stop].transpose(0, 1), states_2KLD)
        mixed_NHD[start:stop] = mixed_HTD.transpose(0, 1)
        start = stop
    return mixed_NHD


def _attend_to_past(query_HTD: Tensor, states_2KLD: Tensor) -> Tensor:
    """Causal attention [H, T, D] of the last T places of L."""
    T, L = query_HTD.shape[1], states_2KLD.shape[2]
    keys_KLD, values_KLD = states_2KLD
    mask_TL = None
    if L > T > 1:
        mask_TL = torch.ones(T, L, dtype=torch.bool, device=query_HTD.device).tril(L - T)
    mixed = F.scaled_dot_product_attention(
        query_HTD[None],
        keys_KLD[None],
        values_KLD[None],
        attn_mask=mask_TL,
        is_causal=T > 1 and L == T,
        enable_gqa=query_HTD.shape[0] != keys_KLD.shape[0],
    )
    return mixed[0]


def _finish(layer: FusedLayer, hidden_NE: Tensor, mixed_NE: Tensor) -> Tensor:
    """The rest of a layer, in place: output projection and feed-forward, each added on."""
    hidden_NE += layer.output(mixed_NE)
    gate_NF, up_NF = layer.gate_up(layer.feed_norm(hidden_NE)).chunk(2, -1)
    hidden_NE += layer.down(F.silu(gate_NF) * up_NF)
    return hidden_NE
