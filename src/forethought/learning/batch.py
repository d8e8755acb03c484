"""Trajectories made ready for a gradient.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Tokens
from forethought.learning.streams import Denominators


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded rows with one value a token in each stream; the padding is on the right.

    `mask_BT` marks the policy's own tokens; every other stream is 0 where it is False. Position
    t of each stream speaks of token t, which was predicted from the tokens before it.
    """

    ids_BT: Tensor
    mask_BT: Tensor
    sampled_logprobs_BT: Tensor
    advantages_BT: Tensor
    lengths_B: Tensor

    def denominators(self, budget: float | None) -> Denominators:
        """What the whole batch divides by: its trained tokens, and its rows that have any."""
        return Denominators.count([self.mask_BT], budget)

    def take(self, rows: Sequence[int]) -> "Batch":
        """These rows, cut to the longest of them."""
        chosen = torch.tensor(rows, dtype=torch.long)
        longest = int(self.lengths_B[chosen].max()) if rows else 0
        streams = {
            field.name: getattr(self, field.name)[chosen][:, :longest]
            for field in fields(self)
            if field.name.endswith("_BT")
        }
        return replace(self, **streams, lengths_B=self.lengths_B[chosen])

    def portions(self, tokens: int) -> list[list[int]]:
        """Row numbers in portions of similar length, each of at most `tokens` padded tokens.

        A row longer than that is a portion of its own.
        """
        lengths: list[int] = self.lengths_B.tolist()
        portions: list[list[int]] = []
        for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
            if portions and (len(portions[-1]) + 1) * lengths[row] <= tokens:
                portions[-1].append(row)
            else:
                portions.append([row])
        return portions

    def deal(self, hands: int) -> list[list[int]]:
        """Row numbers dealt to `hands` workers so that each has about the same work."""
        lengths: list[int] = self.lengths_B.tolist()
        order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
        return [order[hand::hands] for hand in range(hands)]


def pad(rows: Sequence[Tokens], advantages: Sequence[float]) -> Batch:
    """Rows of tokens, each with one advantage for all of its sampled tokens.

    Raises `RecipeError` when there is nothing to train.
    """
    # Nothing precedes a row's first token, so it is not predicted, whoever wrote it.
    if not any(any(row.sampled[1:]) for row in rows):
        raise RecipeError(
            f"batch: none of its {len(rows)} rows has a token that the policy wrote, so there is "
            "nothing to train; check that the trajectories hold assistant turns"
        )
    B, T = len(rows), max(map(len, rows))
    ids_BT = torch.zeros(B, T, dtype=torch.long)
    mask_BT = torch.zeros(B, T, dtype=torch.bool)
    logprobs_BT = torch.zeros(B, T)
    for number, row in enumerate(rows):
        ids_BT[number, : len(row)] = torch.tensor(row.ids)
        mask_BT[number, : len(row)] = torch.tensor(row.sampled)
        logprobs_BT[number, : len(row)] = torch.tensor(row.logprobs)
    mask_BT[:, 0] = False
    return Batch(
        ids_BT=ids_BT,
        mask_BT=mask_BT,
        sampled_logprobs_BT=logprobs_BT.masked_fill(~mask_BT, 0.0),
        advantages_BT=torch.tensor(advantages)[:, None] * mask_BT,
        lengths_B=torch.tensor([len(row) for row in rows]),
    )
