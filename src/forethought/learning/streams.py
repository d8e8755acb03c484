"""Per-token streams: the only contract between credit assignment and loss.

Whoever assigns credit fills a `Streams`; a loss reads it and knows nothing of rewards, turns or
agents. Building one from trajectories is not done here.

Shapes: B sequences, T tokens (padded). Nothing at a position where `mask_BT` is false is ever
read, so padding and tool output may hold anything, infinities and NaN included.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

NUMBERS = ("advantages_BT", "old_logprobs_BT", "weights_BT", "ref_logprobs_BT")
"""What holds a real number a token."""

PRECISE = (torch.float32, torch.float64)
"""In narrower types a ratio of probabilities is hardly told from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """What a loss may look at beside the current log-probabilities. All of it is constant.

    `mask_BT` (bool) marks the tokens that the policy sampled, its own end-of-turn token included.
    `old_logprobs_BT` is the denominator of the ratio, `weights_BT` scales a token's share of the
    objective, `ref_logprobs_BT` is the frozen reference (needed only for a KL penalty).
    `turns_BT` (int64) numbers the turn of every policy token from 0, for a loss with a ratio a
    turn. Natural logarithms in float32 or wider, at the sampling temperature on both sides of
    every ratio. Raises ValueError when shapes or number types differ from these or a stream
    carries a gradient.

    >>> mask = torch.tensor([[False, True]])
    >>> Streams.uniform(mask, advantage=1.0, old_logprobs_BT=torch.zeros(1, 2)).advantages_BT
    tensor([[1., 1.]])
    """

    mask_BT: Tensor
    advantages_BT: Tensor
    old_logprobs_BT: Tensor
    weights_BT: Tensor
    ref_logprobs_BT: Tensor | None = None
    turns_BT: Tensor | None = None

    def __post_init__(self) -> None:
        if self.mask_BT.dtype is not torch.bool or self.mask_BT.ndim != 2:
            raise ValueError(
                "mask_BT must be a bool tensor of shape [B, T], got "
                f"{self.mask_BT.dtype} of shape {tuple(self.mask_BT.shape)}"
            )
        if self.turns_BT is not None and self.turns_BT.dtype is not torch.int64:
            raise ValueError(f"turns_BT must be a tensor of int64, got {self.turns_BT.dtype}")
        for name in (*NUMBERS, "turns_BT"):
            stream: Tensor | None = getattr(self, name)
            if stream is None:
                continue
            if name in NUMBERS and stream.dtype not in PRECISE:
                raise ValueError(
                    f"{name} must be a tensor of float32 or float64, got {stream.dtype}: convert "
                    "what it was computed from"
                )
            if stream.shape != self.mask_BT.shape:
                raise ValueError(
                    f"{name} must have the mask's shape {tuple(self.mask_BT.shape)}, got "
                    f"{tuple(stream.shape)}: expand it first"
                )
            if stream.requires_grad:
                raise ValueError(f"{name} must be constant: detach it first")

    @classmethod
    def uniform(cls, mask_BT: Tensor, *, advantage: float, old_logprobs_BT: Tensor) -> "Streams":
        """The same advantage and weight 1 for every token: imitation, or a worked example."""
        return cls(
            mask_BT=mask_BT,
            advantages_BT=torch.full_like(old_logprobs_BT, advantage),
            old_logprobs_BT=old_logprobs_BT,
            weights_BT=torch.ones_like(old_logprobs_BT),
        )

    def kept(self, values_BT: Tensor) -> Tensor:
        """`values_BT` at policy tokens and 0 elsewhere. Selects: inf or NaN times 0 is NaN."""
        return torch.where(self.mask_BT, values_BT, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """What sums are divided by, counted over the *whole* optimiser step.

    Every micro-batch divides its own sum by these, so that gradients add up to exactly that of
    the undivided batch. `sequences` counts only sequences with a policy token. `budget` is the
    constant length of Dr. GRPO: the configured completion limit, never the padded length.

    >>> Denominators.count([torch.tensor([[True, True], [False, False]])]).sequences
    1.0
    """

    tokens: float
    sequences: float
    budget: float | None = None

    @classmethod
    def count(cls, masks_BT: Iterable[Tensor], budget: float | None = None) -> "Denominators":
        """Count the policy tokens and the sequences of every micro-batch of one step."""
        lengths = [mask_BT.sum(dim=1) for mask_BT in masks_BT]
        return cls(
            tokens=float(sum(int(length_B.sum()) for length_B in lengths)),
            sequences=float(sum(int((length_B > 0).sum()) for length_B in lengths)),
            budget=budget,
        )
