"""Trajectories made ready for a gradient.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import torch
from torch import Tensor

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Tokens
from forethought.learning.streams import Denominators
from forethought.policy.local.packing import Alike


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

    def needed(self) -> list[list[int]]:
        """The ids of each row that come before its last trained token: all that has to be read."""
        places_T = torch.arange(self.mask_BT.shape[1])
        lengths: list[int] = (self.mask_BT * places_T).amax(1).tolist() if places_T.numel() else []
        rows: list[list[int]] = self.ids_BT.tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=False)]

    def portions(self, tokens: int) -> list[list[int]]:
        """Row numbers in portions of at most `tokens` tokens to read; neighbours begin alike.

        A row longer than that is a portion of its own.
        """
        rows = Alike.sort(self.needed())
        cuts = [0][: len(rows.order)]
        apart = 0
        for last, length in enumerate(rows.lengths):
            apart += length
            if last > cuts[-1] and apart > tokens and rows.laid(cuts[-1], last + 1) > tokens:
                cuts.append(last)
                apart = length
        return [rows.order[one:other] for one, other in pairwise([*cuts, len(rows.order)])]

    def deal(self, hands: int) -> list[list[int]]:
        """Row numbers dealt to `hands` workers: about the same work each, neighbours together."""
        rows = Alike.sort(self.needed())
        dealt: list[list[int]] = [[] for _ in range(hands)]
        done, whole = 0, max(sum(rows.lengths) - sum(rows.alike), 1)
        for row, length, alike in zip(rows.order, rows.lengths, [0, *rows.alike], strict=False):
            before, done = done, done + length - alike
            middle = max((before + done) * hands - 1, 0) // (2 * whole)
            dealt[min(middle, hands - 1)].append(row)
        return dealt


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
