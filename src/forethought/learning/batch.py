"""Trajectories made ready for a gradient.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise

import torch
from torch import Tensor

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Episode, Tokens, Trajectory
from forethought.learning.streams import Denominators
from forethought.policy.local.packing import Alike

_MASKED = ("sampled_logprobs_BT", "advantages_BT")
"""Streams that every batch has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded rows with one value a token in each stream; the padding is on the right.

    `mask_BT` marks the policy's own tokens; every other stream is 0 where it is False. Position
    t of each stream speaks of token t, which was predicted from the tokens before it. `turns_BT`
    (int64) numbers each token's turn in its trajectory from 0, and is -1 where `mask_BT` is False.
    `old_logprobs_BT` are the learner's own before a round's updates (None: those of the sampler
    stand for them), `weights_BT` scale a token's share of the loss (None: 1). `old_values_BT` and
    `returns_BT` are for a critic: its values before the updates, and what it should have said.
    `names` says which attempt each row is of, where that is known.
    """

    ids_BT: Tensor
    mask_BT: Tensor
    sampled_logprobs_BT: Tensor
    advantages_BT: Tensor
    turns_BT: Tensor
    lengths_B: Tensor
    old_logprobs_BT: Tensor | None = None
    weights_BT: Tensor | None = None
    old_values_BT: Tensor | None = None
    returns_BT: Tensor | None = None
    names: tuple[str, ...] = ()

    def denominators(self, budget: float | None) -> Denominators:
        """What the whole batch divides by: its trained tokens, and its rows that have any."""
        return Denominators.count([self.mask_BT], budget)

    def take(self, rows: Sequence[int]) -> "Batch":
        """These rows, cut to the longest of them."""
        chosen = torch.tensor(rows, dtype=torch.long)
        longest = int(self.lengths_B[chosen].max()) if rows else 0
        streams: dict[str, Tensor] = {
            field.name: stream[chosen][:, :longest]
            for field in fields(self)
            if field.name.endswith("_BT") and (stream := getattr(self, field.name)) is not None
        }
        names = tuple(self.names[row] for row in rows) if self.names else ()
        return replace(self, **streams, lengths_B=self.lengths_B[chosen], names=names)

    def masked(self, mask_BT: Tensor, weights_BT: Tensor) -> "Batch":
        """The same with fewer trained tokens and with weights; streams stay as their masks say."""
        kept = {
            name: torch.where(mask_BT, stream, 0)
            for name in (*_MASKED, "old_logprobs_BT", "old_values_BT", "returns_BT")
            if (stream := getattr(self, name)) is not None
        }
        turns_BT = self.turns_BT.masked_fill(~mask_BT, -1)
        return replace(self, **kept, mask_BT=mask_BT, turns_BT=turns_BT, weights_BT=weights_BT)

    def needed(self) -> list[list[int]]:
        """The ids of each row that come before its last trained token: all that has to be read."""
        places_T = torch.arange(self.mask_BT.shape[1])
        lengths: list[int] = (self.mask_BT * places_T).amax(1).tolist() if places_T.numel() else []
        rows: list[list[int]] = self.ids_BT.tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=False)]

    def portions(self, tokens: int) -> list[list[int]]:
        """Row numbers in portions of at most `tokens` tokens to read, as few tokens as may be.

        Neighbours begin alike. A row longer than that is a portion of its own.
        """
        rows = Alike.sort(self.needed())
        return [rows.order[one:other] for one, other in pairwise(rows.cuts(tokens))]

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


def turn_numbers(segments: Sequence[Tokens]) -> list[list[int]]:
    """The turn of each token of a trajectory's segments, counted from 0; -1 where none was sampled.

    A turn is a run of sampled tokens: between two turns stands what was heard, or a new segment.

    >>> said = Tokens(ids=(7, 2), sampled=(True, True), logprobs=(-0.5, -0.1))
    >>> turn_numbers([Tokens.join((Tokens.given((1,)), said)), said])
    [[-1, 0, 0], [1, 1]]
    """
    found: list[list[int]] = []
    turn = -1
    for segment in segments:
        row: list[int] = []
        for sampled, run in groupby(segment.sampled):
            turn += sampled
            row += [turn if sampled else -1] * len(list(run))
        found.append(row)
    return found


def numbered_turns(episode: Episode, trajectory: Trajectory) -> list[list[int]]:
    """`turn_numbers` of a trajectory of `episode`, by which its turns are told apart.

    Raises ValueError unless each turn has as many tokens in the segments as it says.
    """
    numbers = turn_numbers(trajectory.segments)
    counts = Counter(number for row in numbers for number in row if number >= 0)
    found = [counts[number] for number in sorted(counts)]
    said = [turn.tokens for turn in trajectory.turns if turn.tokens]
    if found != said:
        raise ValueError(
            f"episode {episode.id}: its turns sampled {said} tokens and its segments hold runs of "
            f"{found}: each turn is one run of sampled tokens, with others between them"
        )
    return numbers


def pad(
    rows: Sequence[Tokens],
    advantages: Sequence[float | Sequence[float]],
    turns: Sequence[Sequence[int]] | None = None,
) -> Batch:
    """Rows of tokens, each with one advantage for all of its sampled tokens or one for each token.

    `turns` holds each token's turn; without it, each row is taken for a whole trajectory. Raises
    `RecipeError` when there is nothing to train.
    """
    # Nothing precedes a row's first token, so it is not predicted, whoever wrote it.
    if not any(any(row.sampled[1:]) for row in rows):
        raise RecipeError(
            f"batch: none of its {len(rows)} rows has a token that the policy wrote, so there is "
            "nothing to train; check that the trajectories hold assistant turns"
        )
    turns = [turn_numbers([row])[0] for row in rows] if turns is None else turns
    mask_BT = _padded([row.sampled for row in rows], torch.bool)
    mask_BT[:, 0] = False
    advantages_BT = torch.zeros(mask_BT.shape)
    for number, advantage in enumerate(advantages):
        width = len(rows[number]) if isinstance(advantage, Sequence) else mask_BT.shape[1]
        advantages_BT[number, :width] = torch.tensor(advantage)
    return Batch(
        ids_BT=_padded([row.ids for row in rows], torch.long),
        mask_BT=mask_BT,
        sampled_logprobs_BT=_padded([row.logprobs for row in rows]).masked_fill(~mask_BT, 0.0),
        advantages_BT=advantages_BT * mask_BT,
        turns_BT=_padded(turns, torch.long).masked_fill(~mask_BT, -1),
        lengths_B=torch.tensor([len(row) for row in rows]),
    )


def _padded(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.float32) -> Tensor:
    """The rows one below the other, with 0 on their right."""
    padded_BT = torch.zeros(len(rows), max(map(len, rows)), dtype=dtype)
    for number, row in enumerate(rows):
        padded_BT[number, : len(row)] = torch.tensor(row)
    return padded_BT
