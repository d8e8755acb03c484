"""A padded forward pass by the book, in the number type of the weights: what others must equal.

The library's own norms are in float32 whatever the weights are, so that they cannot judge
anything to more digits.
"""

import torch

from forethought.policy.local.decoder import Decoder


def rotate(states, cos, sin):
    """Rotary position embedding in the half-split layout (RoFormer, arXiv 2104.09864)."""
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat((-second, first), -1) * sin


def normed(states, module):
    scale = (states.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt()
    return states * scale * module.weight


def padded_hidden(model, ids_BT):
    """Hidden states [B, T, E] of rows padded on the right."""
    decoder = Decoder(model)
    hidden = model.model.embed_tokens(ids_BT)
    T = ids_BT.shape[1]
    cos, sin = (table[:, None] for table in decoder.rotations(T))
    hidden_from = torch.ones(T, T, dtype=torch.bool).triu(1)
    for block in decoder.blocks:
        inputs = normed(hidden, block.attention_norm)
        query, key, value = (
            module(inputs).unflatten(-1, (-1, decoder.head_size))
            for module in (block.query, block.key, block.value)
        )
        if block.query_norm is not None:
            query, key = normed(query, block.query_norm), normed(key, block.key_norm)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        shared = decoder.heads // decoder.key_heads
        key, value = (each.repeat_interleave(shared, 2) for each in (key, value))
        scores = torch.einsum("bthd,bshd->bhts", query, key) / decoder.head_size**0.5
        weights = scores.masked_fill(hidden_from, -torch.inf).softmax(-1)
        mixed = torch.einsum("bhts,bshd->bthd", weights, value).flatten(2)
        hidden = hidden + block.output(mixed)
        inputs = normed(hidden, block.feed_norm)
        gate = block.gate(inputs)
        hidden = hidden + block.down(gate * gate.sigmoid() * block.up(inputs))
    return normed(hidden, decoder.norm)


def padded_logprobs(model, ids_BT, mask_BT, temperature=1.0):
    """Log-probability [B, T] of each token of the mask, 0 elsewhere."""
    logits = model.lm_head(padded_hidden(model, ids_BT))[:, :-1] / temperature
    chosen = logits.log_softmax(-1).gather(2, ids_BT[:, 1:, None])[..., 0]
    return torch.nn.functional.pad(chosen, (1, 0)).where(mask_BT, 0.0)
