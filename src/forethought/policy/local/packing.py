"""Rows of tokens laid end to end, without padding, and what rows begin with alike laid once.

A *stretch* is consecutive tokens. Where rows begin alike, a stretch is theirs together, and what
follows it branches. Stretches lie depth first, so that all that has read one lies right behind
it. A token attends to its own stretch up to itself, and to every stretch that it has read. Nothing
of a model is known here.

Shapes: B rows, T positions, N tokens laid.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from forethought.policy.local.prefixes import alike

WORTH = 8
"""A beginning is shared when the tokens saved, times this, reach the tokens that read it: these
then attend in two parts, which must be put together in every layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Tokens `start` to `stop` of the flat order; those from `stop` to `reach` have read it."""

    start: int
    stop: int
    reach: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Where each token of a few rows lies. `place_BT` is 0 where a row has no token.

    `owner_N` is the place in a flattened [B, T] of one row that has the token.

    >>> packing = pack([[5, 6, 7], [9], [5, 6, 8]])
    >>> packing.ids_N.tolist()
    [5, 6, 7, 8, 9]
    >>> packing.place_BT.tolist()
    [[0, 1, 2], [4, 0, 0], [0, 1, 3]]
    >>> packing.stretches[0]
    Stretch(start=0, stop=2, reach=4)
    """

    ids_N: Tensor
    positions_N: Tensor
    place_BT: Tensor
    owner_N: Tensor
    stretches: tuple[Stretch, ...]

    @property
    def shared(self) -> list[Stretch]:
        """Stretches that others have read."""
        return [each for each in self.stretches if each.reach > each.stop]

    def to(self, device: torch.device) -> "Packing":
        """The same with its tensors on a device."""
        return replace(
            self,
            ids_N=self.ids_N.to(device),
            positions_N=self.positions_N.to(device),
            place_BT=self.place_BT.to(device),
            owner_N=self.owner_N.to(device),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Positions `begin` to `end` of rows `first` to `last`, all alike."""

    first: int
    last: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Rows in an order in which those that begin alike are neighbours.

    `alike` is how many tokens each has in common with the next.

    >>> rows = Alike.sort([[5, 6, 7], [9], [5, 6, 8]])
    >>> rows.order, rows.alike, rows.laid(0, 2)
    ([0, 2, 1], [2, 0], 4)
    """

    order: list[int]
    lengths: list[int]
    alike: list[int]

    @classmethod
    def sort(cls, rows: Sequence[Sequence[int]]) -> "Alike":
        """Sort rows of ids."""
        order = sorted(range(len(rows)), key=lambda row: tuple(rows[row]))
        return cls(
            order=order,
            lengths=[len(rows[row]) for row in order],
            alike=[alike(rows[one], rows[other]) for one, other in pairwise(order)],
        )

    def laid(self, first: int, end: int) -> int:
        """How many tokens are laid for rows `first` to `end` of this order."""
        spans = _spans(self.lengths[first:end], self.alike[first : max(end - 1, first)])
        return sum(span.end - span.begin for span in spans)

    def cuts(self, tokens: int) -> list[int]:
        """Where to cut this order into portions for which at most `tokens` tokens are laid.

        What the two rows at a cut have in common is laid twice: the cuts are those where that is
        least in all. From 0 to the number of rows; a longer row is a portion of its own.

        >>> Alike.sort([[5, 6, 7], [5, 6, 8], [9, 1, 2], [9, 1, 3], [9, 1, 4]]).cuts(8)
        [0, 2, 5]
        """
        before, lost = [0, *accumulate(self.lengths)], [0, *self.alike]
        least = [0]  # tokens laid twice, at best, for the rows before each
        starts = [0]  # where the last of their portions begins then
        first = 0

        def fits(start: int, end: int) -> bool:
            short = start == end - 1 or before[end] - before[start] <= tokens
            return short or self.laid(start, end) <= tokens

        for end in range(1, len(before)):
            while not fits(first, end):
                first += 1
            best_first = sorted(range(first, end), key=lambda start: least[start] + lost[start])
            # What begins later need not fit, too: of fewer rows, less may be shared.
            start = next(each for each in best_first if fits(each, end))
            least.append(least[start] + lost[start])
            starts.append(start)
        cuts = [len(starts) - 1]
        while cuts[-1]:
            cuts.append(starts[cuts[-1]])
        return cuts[::-1]


def pack(rows: Sequence[Sequence[int]]) -> Packing:
    """Lay rows of ids, whatever their order."""
    laid = Alike.sort(rows)
    T = max(laid.lengths, default=0)
    ids: list[int] = []
    positions: list[int] = []
    owners: list[int] = []
    starts: list[int] = []
    place_BT = torch.zeros(len(rows), T, dtype=torch.long)
    spans = _spans(laid.lengths, laid.alike)
    for span in spans:
        owner = laid.order[span.first]
        starts.append(len(ids))
        ids.extend(rows[owner][span.begin : span.end])
        positions.extend(range(span.begin, span.end))
        owners.extend(range(owner * T + span.begin, owner * T + span.end))
        readers = torch.tensor(laid.order[span.first : span.last + 1])
        place_BT[readers, span.begin : span.end] = torch.arange(starts[-1], len(ids))
    return Packing(
        ids_N=torch.tensor(ids, dtype=torch.long),
        positions_N=torch.tensor(positions, dtype=torch.long),
        place_BT=place_BT,
        owner_N=torch.tensor(owners, dtype=torch.long),
        stretches=_stretches(spans, [*starts, len(ids)]),
    )


def _spans(lengths: Sequence[int], common: Sequence[int]) -> list[_Span]:
    """What to lay for sorted rows, depth first: what is shared stands before what reads it."""
    spans: list[_Span] = []
    waiting = [(0, len(lengths), 0)] if lengths else []
    while waiting:
        first, end, depth = waiting.pop()
        if end - first == 1:
            if lengths[first] > depth:
                spans.append(_Span(first=first, last=first, begin=depth, end=lengths[first]))
            continue
        shared = min(common[first : end - 1])
        saved = (shared - depth) * (end - first - 1)
        if saved and saved * WORTH >= sum(lengths[first:end]) - shared * (end - first):
            spans.append(_Span(first=first, last=end - 1, begin=depth, end=shared))
            depth = shared
        cuts = [first, *(n + 1 for n in range(first, end - 1) if common[n] == shared), end]
        branches = [(one, other, depth) for one, other in pairwise(cuts)]
        waiting.extend(reversed(branches))
    return spans


def _stretches(spans: Sequence[_Span], starts: Sequence[int]) -> tuple[Stretch, ...]:
    """The spans where they were laid."""
    stretches: list[Stretch] = []
    for number, span in enumerate(spans):
        after = number + 1
        while after < len(spans) and spans[after].first <= span.last:
            after += 1
        stretches.append(
            Stretch(start=starts[number], stop=starts[number + 1], reach=starts[after])
        )
    return tuple(stretches)
