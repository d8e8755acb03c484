"""Tokens whose likelihood and advantage go together, which is what lowers entropy (2505.22617).

Such tokens are chosen among those of the *whole* optimiser step, so these functions take its
tensors undivided. What was chosen is a constant that may then be divided like any stream.

Shapes: B sequences, T tokens.
"""

import torch
from torch import Tensor


def covariances(logprobs_BT: Tensor, advantages_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """(A - mean A)(log π - mean log π), both means over policy tokens; 0 elsewhere."""
    tokens = mask_BT.sum().clamp(min=1)

    def centred(values_BT: Tensor) -> Tensor:
        kept_BT = torch.where(mask_BT, values_BT.detach(), 0.0)
        return kept_BT - kept_BT.sum() / tokens

    return torch.where(mask_BT, centred(advantages_BT) * centred(logprobs_BT), 0.0)


def selection_size(mask_BT: Tensor, share: float) -> int:
    """How many policy tokens a share of them is: at least one, where there is any."""
    tokens = int(mask_BT.sum())
    return min(tokens, max(1, int(share * tokens)))


def kl_cov_tokens(covariances_BT: Tensor, mask_BT: Tensor, share: float) -> Tensor:
    """The policy tokens of largest covariance (bool), `share` of all; of equals the first.

    The paper takes a share of 2e-3 for a model of 7B and of 2e-4 for one of 32B.
    """
    ranked = torch.where(mask_BT, covariances_BT, -torch.inf).flatten()
    best = ranked.sort(descending=True, stable=True).indices[: selection_size(mask_BT, share)]
    return torch.zeros_like(mask_BT.flatten()).index_fill(0, best, 1).view_as(mask_BT)


def kl_cov_surrogate(
    log_ratio_BT: Tensor, advantages_BT: Tensor, chosen_BT: Tensor, coefficient: float
) -> Tensor:
    """-A r, plus c |log r| at the chosen tokens; there is no clip; c is 1 in the paper."""
    held_BT = torch.where(chosen_BT, log_ratio_BT.abs(), 0.0)
    return -advantages_BT * log_ratio_BT.exp() + coefficient * held_BT


def clip_cov_candidates(covariances_BT: Tensor, free_BT: Tensor, low: float, high: float) -> Tensor:
    """The tokens (bool) with a covariance between `low` and `high`; the paper's are 1 and 5.

    `free_BT` marks the policy tokens that no clip of ratios holds already.
    """
    return free_BT & (covariances_BT > low) & (covariances_BT < high)


def clip_cov_tokens(candidates_BT: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """At most `size` of the candidates, drawn at random: those whose loss is to be 0."""
    places = candidates_BT.flatten().nonzero()[:, 0]
    order = torch.randperm(len(places), generator=generator)[:size].to(places.device)
    return (
        torch.zeros_like(candidates_BT.flatten())
        .index_fill(0, places[order], 1)
        .view_as(candidates_BT)
    )
