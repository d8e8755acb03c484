"""Keys and values of rows that lie side by side because they are about equally long.

Attention reads a row up to where the longest of its shelf ends. Were all rows on one shelf, a few
long ones would make every step read as much again for each of the short ones. Layers lie apart
from each other, so that to grow or shrink takes room for one layer more and not for all twice.

Shapes: Y layers, B rows, R rows of a shelf, K key-value heads, L places, D head size; the pair
2 is keys and values.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from torch import Tensor

from forethought.policy.local.prefixes import Prefix

SPARE = 8
"""Rows that are not worth giving back."""
ALIGNED = 64
"""Bytes in a line of a processor's cache: numbers that begin one are read the faster."""


@dataclass(slots=True, kw_only=True, eq=False)
class ShelvedRow:
    """One row: where it lies, and how many places it holds there.

    Those are the ones after its root's or, with `whole`, all of them. `carried_Y2KLD` is what a row
    holds that lies nowhere yet. One that is `parting` will be whole once it has been laid anew.
    """

    length: int
    root: Prefix | None
    carried_Y2KLD: Tensor | None
    whole: bool = False
    parting: bool = False
    shelf: "Shelf | None" = None
    spot: int = 0

    @property
    def stands_on(self) -> Prefix | None:
        """Its root, unless it holds all itself."""
        return None if self.whole else self.root

    @property
    def start(self) -> int:
        """How many places the root holds that it stands on."""
        return 0 if self.stands_on is None else self.stands_on.length

    @property
    def copied(self) -> int:
        """How many of its root's places it holds itself."""
        return self.root.length if self.whole and self.root is not None else 0

    def states(self, layer: int) -> Tensor:
        """What it holds in a layer, [2, K, L, D]; apart from where it lies if it is parting."""
        before = self.copied if self.parting else 0
        if self.shelf is not None:
            own_2KLD = self.shelf.layers[layer][:, self.spot, :, : self.length - before]
        else:
            assert self.carried_Y2KLD is not None
            own_2KLD = self.carried_Y2KLD[layer]
        if not self.parting or self.root is None:
            return own_2KLD
        return torch.cat((self.root.own[layer], own_2KLD), 2)

    def stays_on(self, shelf: "Shelf") -> bool:
        """Whether it may go on lying where it is, there."""
        return self.shelf is shelf and not self.parting

    def part(self) -> None:
        """Hold what its root holds as well, once it has been laid anew."""
        assert self.stands_on is not None
        self.whole = self.parting = True
        self.length += self.copied

    def lie(self, shelf: "Shelf", spot: int) -> None:
        """It lies there now."""
        self.shelf, self.spot = shelf, spot
        self.carried_Y2KLD, self.parting = None, False


@dataclass(slots=True, kw_only=True, eq=False)
class Shelf:
    """Rows of up to `places` places, in `layers` of [2, R, K, places, D] with room for more."""

    places: int
    layers: list[Tensor]
    rows: list[ShelvedRow] = field(default_factory=list[ShelvedRow])

    @classmethod
    def empty(cls, nothing_Y2KLD: Tensor, places: int) -> Self:
        """No rows; `nothing_Y2KLD` has the sizes, number type and device (its L is 0)."""
        Y, _, K, _, D = nothing_Y2KLD.shape
        return cls(
            places=places, layers=[nothing_Y2KLD.new_zeros(2, 0, K, places, D) for _ in range(Y)]
        )

    @property
    def is_full(self) -> bool:
        """Whether some row has no place left."""
        return any(row.length == self.places for row in self.rows)

    def hold(self, layer: int, staying: Sequence[int], coming: Sequence[Tensor]) -> None:
        """Of one layer, keep these spots, in this order, and put others' states after them."""
        held_2RKLD = kept_2RKLD = self.layers[layer]
        room = _room(len(staying) + len(coming), held_2RKLD.shape[1])
        if room != held_2RKLD.shape[1]:
            # Zeros, not whatever lay there: a masked place weighs nothing, but nothing times NaN
            # is NaN.
            shape = (2, room, *held_2RKLD.shape[2:])
            kept_2RKLD = self.layers[layer] = _zeros(held_2RKLD, shape)
        for new, old in enumerate(staying):
            if new != old or kept_2RKLD is not held_2RKLD:
                length = self.rows[old].length
                kept_2RKLD[:, new, :, :length] = held_2RKLD[:, old, :, :length]
        for spot, states_2KLD in enumerate(coming, len(staying)):
            kept_2RKLD[:, spot, :, : states_2KLD.shape[2]] = states_2KLD


def arranged(count: int, leaving: Set[int]) -> list[int]:
    """The spots of those that stay, `count` less those leaving, the last moved into what is free.

    >>> arranged(5, {1, 3})
    [0, 4, 2]
    """
    stay = count - len(leaving)
    movers = [spot for spot in range(stay, count) if spot not in leaving]
    return [movers.pop() if spot in leaving else spot for spot in range(stay)]


def _room(rows: int, held: int) -> int:
    """For how many rows there shall be room, where there was room for `held`.

    By half as many again at least, so that copying stays a small part of what is done meanwhile.
    """
    if rows > held:
        return max(rows, held + max(SPARE // 2, held // 2))
    return rows if held > 2 * rows + SPARE else held


def _zeros(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros. On a CPU they take neither memory nor time before something is put there."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    taken = math.prod(shape) * like.itemsize
    cleared = np.zeros(taken + ALIGNED, np.uint8)  # which the system clears when it is touched
    start = -cleared.ctypes.data % ALIGNED
    return torch.from_numpy(cleared[start : start + taken]).view(like.dtype).view(*shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one step sees of a shelf: its rows up to the longest, the step's own place included.

    `rows` is where they are among the rows of all shelves, B; `spots_R` where they lie on this one,
    and `lengths_R` where each one's next token goes. `mask_R11L` is what attention adds: nothing up
    to there, -inf beyond.
    """

    shelf: Shelf
    rows: slice
    spots_R: Tensor
    lengths_R: Tensor
    mask_R11L: Tensor

    @classmethod
    def of(cls, shelf: Shelf, start: int) -> Self:
        """The shelf as it is, after so many rows of other shelves."""
        first = shelf.layers[0]
        lengths = [row.length for row in shelf.rows]
        lengths_R = torch.tensor(lengths, device=first.device)
        return cls(
            shelf=shelf,
            rows=slice(start, start + len(lengths)),
            spots_R=torch.arange(len(lengths), device=first.device),
            lengths_R=lengths_R,
            mask_R11L=_visible(lengths_R, max(lengths) + 1, first.dtype),
        )

    def write(self, layer: int, pair_B2KD: Tensor) -> None:
        """Put keys and values at each row's next place."""
        self.shelf.layers[layer][:, self.spots_R, :, self.lengths_R] = pair_B2KD[self.rows]

    def seen(self, layer: int) -> Tensor:
        """States [2, R, K, L, D] up to the longest row's next place."""
        R, longest = len(self.lengths_R), self.mask_R11L.shape[-1]
        return self.shelf.layers[layer][:, :R, :, :longest]


def _visible(lengths_R: Tensor, longest: int, dtype: torch.dtype) -> Tensor:
    places_L = torch.arange(longest, device=lengths_R.device)
    beyond_RL = places_L > lengths_R[:, None]
    mask_RL = torch.zeros_like(beyond_RL, dtype=dtype).masked_fill_(beyond_RL, -torch.inf)
    return mask_RL[:, None, None]
