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
    logprobs_BV = torch.log_softmax(scaled_BV, dim=-1)
    probs_BV = logprobs_BV.exp()
    weights_BV = truncate(probs_BV, top_ps_B) if bool((top_ps_B < 1).any()) else probs_BV
    mass_BV = weights_BV.double().cumsum(-1)
    aim_B1 = (uniforms_B.double() * mass_BV[:, -1])[:, None]
    drawn_B = torch.searchsorted(mass_BV, aim_B1, right=True)[:, 0]
    best_B = scaled_BV.argmax(-1)
    ids_B = torch.where(greedy_B, best_B, drawn_B.clamp(max=logits_BV.shape[1] - 1))
    return Choice(
        ids_B=ids_B,
        logprobs_B=logprobs_BV.gather(1, ids_B[:, None])[:, 0],
        entropies_B=-(probs_BV * logprobs_BV).sum(-1),
    )


def truncate(probs_BV: Tensor, top_ps_B: Tensor) -> Tensor:
    """Nucleus: zero all but the likeliest tokens that together reach top-p (arXiv 1904.09751)."""
    ranked_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = ranked_BV.cumsum(-1) - ranked_BV
    kept_BV = torch.where(before_BV < top_ps_B[:, None], ranked_BV, 0.0)
    return torch.zeros_like(probs_BV).scatter(1, order_BV, kept_BV)
