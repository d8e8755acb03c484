"""Keys and values of what has been read: one prefix alone, or many rows that speak at once.

Shapes: Y layers, B rows, K key-value heads, L places, D head size; the pair 2 is keys and values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

BLOCK = 64
"""Places are added in multiples of this."""


@dataclass(slots=True, kw_only=True, eq=False)
class Prefix:
    """What one row has read so far: its ids, and states [Y, 2, K, L, D] with room for more."""

    ids: list[int]
    states_Y2KLD: Tensor

    @property
    def length(self) -> int:
        """How many tokens have been read."""
        return len(self.ids)

    def keep_common(self, ids: Sequence[int]) -> None:
        """Forget everything from the first token in which `ids` differ on."""
        del self.ids[alike(self.ids, ids) :]

    def borrow(self, other: "Prefix", length: int) -> None:
        """Begin as `other` does, by copying its first `length` places. There must be room."""
        self.states_Y2KLD[:, :, :, :length] = other.states_Y2KLD[:, :, :, :length]
        self.ids[:] = other.ids[:length]

    def reserve(self, places: int) -> None:
        """Make room for at least `places` tokens."""
        self.states_Y2KLD = grown(self.states_Y2KLD, 3, _blocks(places), self.length)


class Slots:
    """Rows that speak at once, in one tensor: row n of a step lies in slot n."""

    def __init__(self, empty_Y2KLD: Tensor) -> None:
        """No rows; `empty_Y2KLD` has the sizes, number type and device (its L may be 0)."""
        Y, _, K, _, D = empty_Y2KLD.shape
        self.states_Y2BKLD = empty_Y2KLD.new_zeros(Y, 2, 0, K, 0, D)

    def reserve(self, rows: int, places: int) -> None:
        """Make room for this many rows of this many places."""
        held = self.states_Y2BKLD.shape[2]
        if rows > held:
            rows = max(rows, held + held // 2)
            self.states_Y2BKLD = grown(self.states_Y2BKLD, 2, rows, held)
        held = self.states_Y2BKLD.shape[4]
        if places > held:
            places = _blocks(max(places + BLOCK, held + held // 2))
            self.states_Y2BKLD = grown(self.states_Y2BKLD, 4, places, held)

    def put(self, slot: int, prefix: Prefix) -> None:
        """Copy a prefix into a slot."""
        length = prefix.length
        self.states_Y2BKLD[:, :, slot, :, :length] = prefix.states_Y2KLD[:, :, :, :length]

    def take(self, slot: int, ids: Sequence[int]) -> Prefix:
        """A slot's states as a prefix of its own; `ids` are the tokens that it has read."""
        places = min(_blocks(len(ids) + BLOCK), self.states_Y2BKLD.shape[4])
        states_Y2KLD = self.states_Y2BKLD[:, :, slot, :, :places].clone()
        return Prefix(ids=list(ids), states_Y2KLD=states_Y2KLD)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` places of one slot over those of another."""
        rows = self.states_Y2BKLD
        rows[:, :, target, :, :length] = rows[:, :, source, :, :length]


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


def grown(states: Tensor, dimension: int, size: int, used: int) -> Tensor:
    """`states` with at least `size` along a dimension, of which the first `used` are kept."""
    if size <= states.shape[dimension]:
        return states
    shape = list(states.shape)
    shape[dimension] = size
    # Zeros, not whatever lay there: a masked place weighs nothing, but nothing times NaN is NaN.
    larger = states.new_zeros(shape)
    larger.narrow(dimension, 0, used).copy_(states.narrow(dimension, 0, used))
    return larger


def _blocks(places: int) -> int:
    return -(-places // BLOCK) * BLOCK
