"""The rows that speak at once, and the keys and values of what each has read.

Rows lie side by side, row n in slot n. What rows begin with alike may be a root, which is held
and read once for all of them; a slot then holds what comes after it. Layers lie apart from each
other, so that to grow or shrink takes room for one layer more and not for all of them twice.

Shapes: Y layers, B rows, R rows with a root, K key-value heads, L places, D head size; the pair 2
is keys and values.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from operator import add

import torch
from torch import Tensor

from forethought.policy.local.prefixes import BLOCK, Prefix, blocks

SPARE = 8
"""Slots that are not worth giving back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Which rows stand on a root: `rows_R`, those of one root side by side, and roots with how
    many rows each has."""

    rows_R: Tensor
    roots: tuple[tuple[Prefix, int], ...]


class Slots:
    """Rows that speak at once."""

    def __init__(self, empty_Y2KLD: Tensor) -> None:
        """No rows; `empty_Y2KLD` has the sizes, number type and device (its L may be 0)."""
        Y, _, K, _, D = empty_Y2KLD.shape
        self.layers = [empty_Y2KLD.new_zeros(2, 0, K, 0, D) for _ in range(Y)]
        """States [2, B, K, L, D] of each layer, with room for more rows and places."""
        self._lengths: list[int] = []
        self._roots: list[Prefix | None] = []
        self._starts_B: Tensor | None = None
        self._sharing: Sharing | None = None

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def longest(self) -> int:
        """The most places that a row holds after its root."""
        return max(self._lengths, default=0)

    @property
    def reach(self) -> int:
        """The most places that a row has read, its root's included."""
        starts = (0 if root is None else root.length for root in self._roots)
        return max(map(add, starts, self._lengths), default=0)

    @property
    def lengths(self) -> Tensor:
        """How many places each row holds after its root: where its next one will be."""
        return torch.tensor(self._lengths, device=self.layers[0].device)

    @property
    def starts(self) -> Tensor:
        """How many places each row's root holds."""
        if self._starts_B is None:
            starts = [0 if root is None else root.length for root in self._roots]
            self._starts_B = torch.tensor(starts, device=self.layers[0].device)
        return self._starts_B

    @property
    def sharing(self) -> Sharing | None:
        """The rows that stand on roots; None where no row does."""
        if self._sharing is None and any(self._roots):
            rows: dict[Prefix, list[int]] = {}
            for row, root in enumerate(self._roots):
                if root is not None:
                    rows.setdefault(root, []).append(row)
            flat = [row for each in rows.values() for row in each]
            self._sharing = Sharing(
                rows_R=torch.tensor(flat, device=self.layers[0].device),
                roots=tuple((root, len(each)) for root, each in rows.items()),
            )
        return self._sharing

    def reserve(self, rows: int, places: int) -> None:
        """Make room for at least this many rows of this many places after their roots."""
        _, held_rows, _, held_places, _ = self.layers[0].shape
        if rows <= held_rows and places <= held_places:
            return
        # By an eighth at least, so that copying stays a small part of what is done meanwhile.
        if places > held_places:
            places = blocks(max(places + BLOCK, held_places + held_places // 8))
        self._resize(max(rows, held_rows), max(places, held_places))

    def join(self, prefix: Prefix, root: Prefix | None) -> None:
        """One more row, which has read `prefix` and stands on `root`. There must be room.

        The root is None, or the prefix itself, or its root.
        """
        slot, length = len(self), prefix.after(root)
        own_Y2KLD = prefix.own
        own_Y2KLD = own_Y2KLD[:, :, :, own_Y2KLD.shape[3] - length :]
        for layer_2BKLD, own_2KLD in zip(self.layers, own_Y2KLD, strict=True):
            layer_2BKLD[:, slot, :, :length] = own_2KLD
        self._lengths.append(length)
        self._roots.append(root)
        self._changed()

    def lengthen(self) -> None:
        """Every row has read one more token."""
        self._lengths = [length + 1 for length in self._lengths]

    def leave(self, read: Mapping[int, Sequence[int]]) -> tuple[list[Prefix], list[int]]:
        """Rows leave: `read` has their slots, and the ids that each has read.

        Their prefixes, and for every slot from now on the one that its row had before: the last
        rows move into what is free.
        """
        prefixes = [self._prefix(slot, ids) for slot, ids in read.items()]
        staying = arranged(len(self), read.keys())
        moves = [(old, new) for new, old in enumerate(staying) if old != new]
        kept = len(staying)
        places = blocks(max((self._lengths[old] for old in staying), default=0))
        for number, layer_2BKLD in enumerate(self.layers):
            for slot, prefix in zip(read, prefixes, strict=True):
                length = self._lengths[slot]
                prefix.own[number].copy_(layer_2BKLD[:, slot, :, :length])
            for old, new in moves:
                length = self._lengths[old]
                layer_2BKLD[:, new, :, :length] = layer_2BKLD[:, old, :, :length]
            if layer_2BKLD.shape[1] > 2 * kept + SPARE:
                self.layers[number] = layer_2BKLD[:, :kept, :, :places].clone()
        self._lengths = [self._lengths[old] for old in staying]
        self._roots = [self._roots[old] for old in staying]
        self._changed()
        return prefixes, staying

    def _prefix(self, slot: int, ids: Sequence[int]) -> Prefix:
        """A prefix with room for what `slot` holds and some more, and nothing written yet."""
        _, _, K, _, D = self.layers[0].shape
        places = blocks(self._lengths[slot] + BLOCK)
        return Prefix(
            ids=list(ids),
            states_Y2KLD=self.layers[0].new_empty(len(self.layers), 2, K, places, D),
            root=self._roots[slot],
        )

    def _resize(self, rows: int, places: int) -> None:
        used, longest = len(self), self.longest
        for number, held_2BKLD in enumerate(self.layers):
            _, _, K, _, D = held_2BKLD.shape
            # Zeros, not whatever lay there: a masked place weighs nothing, but nothing times NaN
            # is NaN.
            larger_2BKLD = held_2BKLD.new_zeros(2, rows, K, places, D)
            larger_2BKLD[:, :used, :, :longest] = held_2BKLD[:, :used, :, :longest]
            self.layers[number] = larger_2BKLD

    def _changed(self) -> None:
        self._starts_B = self._sharing = None


def arranged(count: int, leaving: Set[int]) -> list[int]:
    """The slots of those that stay, `count` less those leaving, the last moved into what is free.

    >>> arranged(5, {1, 3})
    [0, 4, 2]
    """
    stay = count - len(leaving)
    movers = [slot for slot in range(stay, count) if slot not in leaving]
    return [movers.pop() if slot in leaving else slot for slot in range(stay)]
