"""How far the policy has moved from the one that sampled: per token, per turn, per sequence.

Shapes: B sequences, T tokens, K turns.
"""

import torch
from torch import Tensor

from forethought.learning.streams import Streams

LIMIT = 20.0
"""Log-ratios are cut at this size, so that no exponential overflows."""


def log_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """log π/π_old at policy tokens, cut at ±20; 0 elsewhere."""
    difference_BT = streams.kept(logprobs_BT) - streams.kept(streams.old_logprobs_BT)
    return difference_BT.clamp(-LIMIT, LIMIT)


def token_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """π/π_old of each policy token; 1 elsewhere."""
    return log_ratio(logprobs_BT, streams).exp()


def sequence_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """exp of the mean log-ratio over a sequence's policy tokens, the same value at each of them.

    Its gradient at a token is that token's own, so that advantages may differ within a sequence;
    where they do not, value and gradient are those of the sequence form (GSPO, 2507.18071,
    sec. 4.3).
    """
    difference_BT = streams.kept(logprobs_BT.detach()) - streams.kept(streams.old_logprobs_BT)
    lengths_B = streams.mask_BT.sum(dim=1).clamp(min=1)
    mean_B1 = (difference_BT.sum(dim=1) / lengths_B).clamp(-LIMIT, LIMIT)[:, None]
    policy_BT = streams.kept(logprobs_BT)
    return (mean_B1 + (policy_BT - policy_BT.detach())).exp()


def joint_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """π/π_old of a sequence's policy tokens taken together, the same value at every place.

    A product: unlike `sequence_ratio` its spread grows with the sequence.
    """
    difference_BT = streams.kept(logprobs_BT) - streams.kept(streams.old_logprobs_BT)
    sums_B1 = difference_BT.sum(dim=1, keepdim=True).clamp(-LIMIT, LIMIT)
    return sums_B1.exp().expand_as(difference_BT)


def turn_ratio(logprobs_BT: Tensor, streams: Streams) -> Tensor:
    """The same over each turn's policy tokens. 1 where there is no policy token."""
    difference_BT = streams.kept(logprobs_BT.detach()) - streams.kept(streams.old_logprobs_BT)
    given_BT = stretches(streams.mask_BT) if streams.turns_BT is None else streams.turns_BT
    turns_BT = torch.where(streams.mask_BT, given_BT, 0)
    # Summed turn by turn and not scattered, which on a GPU adds up in any order.
    numbers_K1 = torch.arange(int(turns_BT.max()) + 1, device=turns_BT.device)[:, None]
    inside_BKT = (turns_BT[:, None] == numbers_K1) & streams.mask_BT[:, None]
    sums_BK = torch.where(inside_BKT, difference_BT[:, None], 0.0).sum(dim=2)
    means_BK = (sums_BK / inside_BKT.sum(dim=2).clamp(min=1)).clamp(-LIMIT, LIMIT)
    policy_BT = streams.kept(logprobs_BT)
    mean_BT = streams.kept(means_BK.gather(1, turns_BT))
    return (mean_BT + (policy_BT - policy_BT.detach())).exp()


def stretches(mask_BT: Tensor) -> Tensor:
    """The number of each stretch of policy tokens without a gap, -1 elsewhere.

    What is given to a policy between two turns parts them, so these are turns while no token of a
    turn has been masked.

    >>> stretches(torch.tensor([[True, True, False, True]]))
    tensor([[ 0,  0, -1,  1]])
    """
    before_BT = torch.nn.functional.pad(mask_BT, (1, 0))[:, :-1]
    numbers_BT = (mask_BT & ~before_BT).cumsum(dim=1) - 1
    return torch.where(mask_BT, numbers_BT, -1)
