"""A gradient on padded rows, as one would write it plainly: the library's modules and autograd."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from forethought.learning.batch import Batch
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.streams import Streams
from forethought.policy.local.decoder import Decoder


def padded_portions(batch: Batch, tokens: int) -> list[list[int]]:
    """Rows of similar length, of at most so many padded tokens."""
    lengths = batch.lengths_B.tolist()
    portions: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if portions and (len(portions[-1]) + 1) * lengths[row] <= tokens:
            portions[-1].append(row)
        else:
            portions.append([row])
    return portions


def padded_hidden(decoder: Decoder, model: nn.Module, ids_BT: torch.Tensor) -> torch.Tensor:
    """Hidden states [B, T, E] of padded rows, through the library's modules."""
    hidden = model.model.embed_tokens(ids_BT)
    cos, sin = decoder.rotations(ids_BT.shape[1])
    for block in decoder.blocks:
        normed = block.attention_norm(hidden)
        query, key, value = (
            module(normed).unflatten(-1, (-1, decoder.head_size))
            for module in (block.query, block.key, block.value)
        )
        if block.query_norm is not None:
            query, key = block.query_norm(query), block.key_norm(key)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        mixed = F.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)),
            is_causal=True,
            enable_gqa=decoder.heads != decoder.key_heads,
        )
        hidden = hidden + block.output(mixed.transpose(1, 2).flatten(2))
        normed = block.feed_norm(hidden)
        hidden = hidden + block.down(F.silu(block.gate(normed)) * block.up(normed))
    return decoder.norm(hidden)


def padded_gradient(model: nn.Module, batch: Batch, options: argparse.Namespace) -> None:
    """Leave the gradient of `batch` in the model's parameters."""
    decoder, loss = Decoder(model), objective(LossSettings())
    model.zero_grad()
    for portion in padded_portions(batch, options.micro_tokens):
        part = batch.take(portion)
        trained = part.mask_BT[:, 1:]
        hidden = padded_hidden(decoder, model, part.ids_BT[:, :-1])[trained]
        targets = part.ids_BT[:, 1:][trained]

        def chosen(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return decoder.head(hidden).log_softmax(-1).gather(1, targets[:, None])[:, 0]

        size = options.logit_tokens
        pieces = zip(hidden.split(size), targets.split(size), strict=True)
        logprobs = torch.cat(
            [
                checkpoint(chosen, *piece, use_reentrant=False)
                if len(hidden) > size
                else chosen(*piece)
                for piece in pieces
            ]
        )
        scattered = torch.zeros_like(trained, dtype=torch.float32).masked_scatter(trained, logprobs)
        streams = Streams(
            mask_BT=part.mask_BT,
            advantages_BT=part.advantages_BT,
            old_logprobs_BT=part.sampled_logprobs_BT,
            weights_BT=torch.ones_like(part.advantages_BT),
        )
        loss(F.pad(scattered, (1, 0)), streams, batch.denominators(None)).loss.backward()
