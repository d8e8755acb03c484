"""Generalised advantage estimation over the policy's own tokens, and what a critic needs.

Pure functions of tensors; whatever predicts values is not here. Tokens that the policy did not
sample are passed over: they carry no reward, no value and no step of discount.

Shapes: B rows, T tokens, N policy tokens of all rows.
"""

import torch
from torch import Tensor

from forethought.learning.whitening import SAME, whitening_scale


def returns_to_go(rewards_BT: Tensor, mask_BT: Tensor, discount: float) -> Tensor:
    """G_t = r_t + discount * G of the row's next policy token; 0 elsewhere (2501.03262).

    >>> mask_BT = torch.tensor([[True, False, True]])
    >>> returns_to_go(torch.tensor([[0.0, 9.0, 1.0]]), mask_BT, 0.5)
    tensor([[0.5000, 0.0000, 1.0000]])
    """
    returns_BT = torch.zeros_like(rewards_BT)
    following_B = torch.zeros_like(rewards_BT[:, 0])
    for t in reversed(range(rewards_BT.shape[1])):
        mask_B = mask_BT[:, t]
        following_B = torch.where(mask_B, rewards_BT[:, t] + discount * following_B, following_B)
        returns_BT[:, t] = torch.where(mask_B, following_B, 0.0)
    return returns_BT


def gae(
    rewards_BT: Tensor, values_BT: Tensor, mask_BT: Tensor, discount: float, trace: float
) -> tuple[Tensor, Tensor]:
    """Advantages, not whitened, and the returns that a critic is trained on (GAE, 1506.02438).

    `trace` is lambda. Returns are advantages + values. Both are 0 where `mask_BT` is false.
    """
    kept_BT = torch.where(mask_BT, values_BT, 0.0)
    errors_BT = rewards_BT + discount * _next_values(kept_BT, mask_BT) - kept_BT
    advantages_BT = returns_to_go(errors_BT, mask_BT, discount * trace)
    return advantages_BT, advantages_BT + kept_BT


def whiten(values_BT: Tensor, mask_BT: Tensor, ddof: int = 1) -> Tensor:
    """Mean 0 and deviation 1 over policy tokens, 0 elsewhere; zeros where there are too few.

    What is within `SAME` of the mean is exactly 0. Computed in float64: in float32 the mean of
    equal values may be further from them.
    """
    kept_N = values_BT[mask_BT].double()
    if len(kept_N) <= ddof:
        return torch.zeros_like(values_BT)
    centred_N = kept_N - kept_N.mean()
    centred_N[centred_N.abs() <= SAME] = 0.0
    variance = float((centred_N**2).sum() / (len(kept_N) - ddof))
    whitened_BT = torch.zeros_like(values_BT)
    whitened_BT[mask_BT] = (centred_N / whitening_scale(variance, ddof)).to(values_BT.dtype)
    return whitened_BT


def value_loss(
    values_BT: Tensor, old_values_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor, clip: float
) -> Tensor:
    """PPO's clipped loss of a critic: half the mean of the larger of two squared errors.

    It is that of PPO's first implementation (OpenAI Baselines); 1707.06347 prints it unclipped.

    One is of the value as it is, the other of the value kept within `clip` of the old one. The
    gradient is in `values_BT`; 0 without a policy token.
    """
    values_N, old_N, returns_N = values_BT[mask_BT], old_values_BT[mask_BT], returns_BT[mask_BT]
    near_N = old_N + (values_N - old_N).clamp(-clip, clip)
    worse_N = torch.maximum((values_N - returns_N) ** 2, (near_N - returns_N) ** 2)
    return 0.5 * worse_N.sum() / max(1, len(worse_N))


def at_turn_ends(values_BT: Tensor, turns_BT: Tensor) -> Tensor:
    """The values at the last token that the policy sampled in each turn, 0 everywhere else.

    A reward put on any other token would be lost. `turns_BT` holds the number of each policy
    token's turn and -1 elsewhere.
    """
    following_BT = torch.nn.functional.pad(turns_BT[:, 1:], (0, 1), value=-1)
    ends_BT = (turns_BT >= 0) & (turns_BT != following_BT)
    return torch.where(ends_BT, values_BT, 0.0)


def _next_values(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The value of the row's next policy token, 0 after the last."""
    next_BT = torch.zeros_like(values_BT)
    following_B = torch.zeros_like(values_BT[:, 0])
    for t in reversed(range(values_BT.shape[1])):
        next_BT[:, t] = following_B
        following_B = torch.where(mask_BT[:, t], values_BT[:, t], following_B)
    return next_BT
