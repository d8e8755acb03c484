"""Choosing one token a row: temperature, top-p, and the numbers kept of each choice.

Randomness is one uniform number a token, a pure function of the turn's seed and the token's
place, so that a row's choices do not depend on its neighbours in the batch.

Shapes: B rows, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 256
"""Tokens whose weights are summed before any is looked at alone."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen ids with their log-probability and the distribution's entropy, [B] each.

    Both are in nats, at the sampling temperature (1 for greedy rows), over the full vocabulary.
    """

    ids_B: Tensor
    logprobs_B: Tensor
    entropies_B: Tensor


def uniforms(seeds_B: NDArray[np.uint64], places_B: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, place): SplitMix64 (Steele et al. 2014) in vectors."""
    state = seeds_B + (places_B + np.uint64(1)) * _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * _MIX_1
    state = (state ^ (state >> np.uint64(27))) * _MIX_2
    state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose(
    logits_BV: Tensor, temperatures_B: Tensor, top_ps_B: Tensor, uniforms_B: Tensor
) -> Choice:
    """Sample each row by inverse cumulative distribution; rows at temperature 0 take the best."""
    greedy_B = temperatures_B == 0
    scaled_BV = logits_BV / torch.where(greedy_B, 1.0, temperatures_B)[:, None]
    scaled_BV -= scaled_BV.amax(-1, keepdim=True)
    weights_BV = scaled_BV.exp()
    total_B = weights_BV.sum(-1)
    kept_BV = weights_BV
    if bool((top_ps_B < 1).any()):
        kept_BV = truncate(weights_BV / total_B[:, None], top_ps_B)
    ids_B = draw(kept_BV, uniforms_B)
    if bool(greedy_B.any()):
        ids_B = torch.where(greedy_B, scaled_BV.argmax(-1), ids_B)
    logprobs_B = scaled_BV.gather(1, ids_B[:, None])[:, 0] - total_B.log()
    # The mean of the scaled logits under the distribution, without another [B, V] of memory.
    mean_B = scaled_BV.mul_(weights_BV).sum(-1) / total_B
    return Choice(ids_B=ids_B, logprobs_B=logprobs_B, entropies_B=total_B.log() - mean_B)


def draw(weights_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """The place [B] where each row's cumulative weight passes its share of the row's total.

    Rows are summed in blocks first, so that only one block of each is walked through.
    """
    blocks_BN, tail = _block_sums(weights_BV), weights_BV.shape[1] - 1
    mass_BN = blocks_BN.double().cumsum(-1)
    aim_B1 = (uniforms_B.double() * mass_BN[:, -1])[:, None]
    block_B1 = torch.searchsorted(mass_BN, aim_B1, right=True).clamp_(max=blocks_BN.shape[1] - 1)
    before_B1 = mass_BN.gather(1, block_B1) - blocks_BN.gather(1, block_B1)
    places_BS = block_B1 * BLOCK + torch.arange(BLOCK, device=weights_BV.device)
    inside_BS = weights_BV.gather(1, places_BS.clamp(max=tail)).masked_fill_(places_BS > tail, 0)
    within_BS = inside_BS.double().cumsum(-1)
    # Sums of blocks and walks through them round differently: never step past the last weight.
    last_B1 = within_BS[:, -1:] * (1 - 1e-12)
    step_B1 = torch.searchsorted(within_BS, (aim_B1 - before_B1).minimum(last_B1), right=True)
    return (block_B1 * BLOCK + step_B1).clamp_(max=tail)[:, 0]


def _block_sums(weights_BV: Tensor) -> Tensor:
    B, V = weights_BV.shape
    whole = V // BLOCK * BLOCK
    sums_BN = weights_BV[:, :whole].view(B, -1, BLOCK).sum(-1)
    if whole == V:
        return sums_BN
    return torch.cat((sums_BN, weights_BV[:, whole:].sum(-1, keepdim=True)), dim=1)


def truncate(probs_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Nucleus: zero all but the likeliest tokens that together reach top-p (arXiv 1904.09751)."""
    ranked_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = ranked_BV.cumsum(-1) - ranked_BV
    kept_BV = torch.where(before_BV < top_ps_B[:, None], ranked_BV, 0.0)
    return torch.zeros_like(probs_BV).scatter(1, order_BV, kept_BV)
