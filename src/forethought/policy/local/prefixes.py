"""What has been read: token ids, and the keys and values that the model made of them.

A prefix may stand on another, its root, which others stand on too: it then holds only what comes
after, and what is shared is held once.

Shapes: Y layers, K key-value heads, L places, D head size; the pair 2 is keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 64
"""Places are added in multiples of this."""


@dataclass(slots=True, kw_only=True, eq=False)
class Prefix:
    """What one row has read so far: its ids, and states [Y, 2, K, L, D] with room for more.

    The states are those after the root's. A root stands on nothing and is never changed again.
    """

    ids: list[int]
    states_Y2KLD: Tensor
    root: "Prefix | None" = None

    @property
    def length(self) -> int:
        """How many tokens have been read, the root's included."""
        return len(self.ids)

    @property
    def start(self) -> int:
        """How many of them the root holds."""
        return 0 if self.root is None else self.root.length

    @property
    def own(self) -> Tensor:
        """The states of what has been read after the root."""
        return self.states_Y2KLD[:, :, :, : self.after(self.root)]

    def after(self, root: "Prefix | None") -> int:
        """How many tokens have been read after those of a root."""
        return self.length - (0 if root is None else root.length)

    def keep_common(self, ids: Sequence[int]) -> None:
        """Forget everything from the first token in which `ids` differ on."""
        del self.ids[alike(self.ids, ids) :]
        if self.root is not None and self.length < self.root.length:
            self.root = self.root.first(self.length) if self.ids else None

    def first(self, length: int) -> "Prefix":
        """The first `length` tokens as a root; a view where this one stands on nothing."""
        if self.root is None:
            states_Y2KLD = self.states_Y2KLD[:, :, :, :length]
        elif length <= self.start:
            return self.root.first(length)
        else:
            parts = (self.root.own, self.own[:, :, :, : length - self.start])
            states_Y2KLD = torch.cat(parts, 3)
        return Prefix(ids=self.ids[:length], states_Y2KLD=states_Y2KLD)

    def begin_as(self, root: "Prefix") -> None:
        """Stand on `root`. Nothing may have been read yet."""
        self.root = root
        self.ids[:] = root.ids

    def settle(self) -> None:
        """Hold all of it, and stand on nothing any more. Room for more is kept."""
        if self.root is None:
            return
        room = self.states_Y2KLD[:, :, :, self.after(self.root) :]
        self.states_Y2KLD = torch.cat((self.root.own, self.own, room), 3)
        self.root = None

    def reserve(self, places: int) -> None:
        """Make room for at least `places` tokens, the root's included."""
        held = self.states_Y2KLD
        if places - self.start <= held.shape[3]:
            return
        shape = list(held.shape)
        shape[3] = blocks(places - self.start)
        used = self.after(self.root)
        # What has not been read is never looked at, so that it takes no memory yet.
        self.states_Y2KLD = held.new_empty(shape)
        self.own.copy_(held[:, :, :, :used])


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two stretches begin with alike.

    >>> alike([1, 2, 3], (1, 2, 4, 5))
    2
    """
    least, most = 0, min(len(one), len(other))
    # Stretches that differ do so from one place on, which halving finds in few comparisons.
    while least < most:
        middle = (least + most + 1) // 2
        if list(one[least:middle]) == list(other[least:middle]):
            least = middle
        else:
            most = middle - 1
    return least


def blocks(places: int) -> int:
    """So many places in whole blocks.

    >>> blocks(65)
    128
    """
    return -(-places // BLOCK) * BLOCK
