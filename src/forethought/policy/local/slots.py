"""The rows that speak at once, and the keys and values of what each has read.

Rows lie on shelves by their length. What rows begin with alike may be a root, which is held and
read once for all of them; a shelf then holds what comes after it. Each root is more to do in a
step, so that rows hold all themselves once too few stand on each.

Shapes: B rows, R rows with a root; Y layers, K key-value heads, L places, D head size; the pair 2
is keys and values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from forethought.policy.local.prefixes import BLOCK, Prefix, blocks
from forethought.policy.local.shelves import Shelf, ShelvedRow, Window, arranged

SMALLEST = 128
"""Places of the smallest shelf; each next one has twice as many."""

PaysToShare = Callable[[Sequence[tuple[int, int]]], bool]
"""Whether it pays that rows share beginnings: how many tokens each has, and how many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Which rows stand on a root: `rows_R`, those of one root side by side, and roots with how
    many rows each has."""

    rows_R: Tensor
    roots: tuple[tuple[Prefix, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The rows in the order in which they lie: shelf by shelf.

    Row n of those comes from `from_B[n]` of the rows as they are known outside, and row n of these
    lies at `back_B[n]`. `starts_B` is how many places the root holds that each one stands on.
    """

    from_B: Tensor
    back_B: Tensor
    starts_B: Tensor
    sharing: Sharing | None


class Slots:
    """Rows that speak at once, numbered in the order in which they joined."""

    def __init__(
        self,
        nothing_Y2KLD: Tensor,
        *,
        apart: bool = True,
        pays_to_share: PaysToShare = lambda beginnings: True,
    ) -> None:
        """No rows; `nothing_Y2KLD` has the sizes, number type and device (its L is 0).

        With `apart` rows lie on shelves by their length, otherwise all on that of the longest:
        each shelf is an operation a layer, which a GPU has less time for than for masked places.
        """
        self._nothing_Y2KLD = nothing_Y2KLD
        self._apart = apart
        self._pays_to_share = pays_to_share
        self._rows: list[ShelvedRow] = []
        self._shelves: list[Shelf] = []
        self._order: Order | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def reach(self) -> int:
        """The most places that a row has read, its root's included."""
        return max((row.start + row.length for row in self._rows), default=0)

    @property
    def order(self) -> Order:
        """How the rows lie. Where some have come or gone, ask only after `make_room`."""
        if self._order is None:
            self._order = self._find_order()
        return self._order

    def windows(self) -> tuple[Window, ...]:
        """What the next step sees of each shelf, in the order of the rows that lie there."""
        starts = accumulate((len(shelf.rows) for shelf in self._shelves), initial=0)
        return tuple(map(Window.of, self._shelves, starts))

    def make_room(self) -> None:
        """Room for one more place: rows that fill their shelf move to the next.

        Where too few stand on each root, by now that all have come, rows hold all themselves.
        """
        parted = self._order is None and self._part_few()
        if parted or any(shelf.is_full for shelf in self._shelves):
            self._settle(self._rows)

    def join(self, newcomers: Iterable[tuple[Prefix, Prefix | None]]) -> None:
        """More rows, each having read a prefix, on a root: None, or the prefix itself, or its
        root."""
        new = [
            ShelvedRow(
                length=prefix.after(root), root=root, carried_Y2KLD=_states_after(prefix, root)
            )
            for prefix, root in newcomers
        ]
        if new:
            self._settle([*self._rows, *new])

    def lengthen(self) -> None:
        """Every row has read one more token."""
        for row in self._rows:
            row.length += 1

    def leave(self, read: Mapping[int, Sequence[int]]) -> list[Prefix]:
        """Rows leave: `read` has their numbers, and the ids that each has read. Their prefixes.

        Those behind them move up.
        """
        prefixes = [self._prefix(self._rows[number], ids) for number, ids in read.items()]
        if read:
            self._settle([row for number, row in enumerate(self._rows) if number not in read])
        return prefixes

    def _prefix(self, row: ShelvedRow, ids: Sequence[int]) -> Prefix:
        """What a row holds, with room for some more."""
        Y, _, K, _, D = self._nothing_Y2KLD.shape
        own = row.length - row.copied
        room = self._nothing_Y2KLD.new_empty(Y, 2, K, blocks(own + BLOCK), D)
        for layer in range(Y):
            room[layer, :, :, :own] = row.states(layer)[:, :, row.copied :]
        return Prefix(ids=list(ids), states_Y2KLD=room, root=row.root)

    def _settle(self, rows: list[ShelvedRow]) -> None:
        """Lay these rows, and no others, on the shelves for their lengths."""
        wanted = self._places(rows)
        by_places = {shelf.places: shelf for shelf in self._shelves}
        for places in set(wanted) - by_places.keys():
            by_places[places] = Shelf.empty(self._nothing_Y2KLD, places)
        plans: list[tuple[Shelf, list[int], list[ShelvedRow]]] = []
        # From the longest on: a row that moves leaves its spot before another comes there.
        for places, shelf in sorted(by_places.items(), reverse=True):
            here = [row for row, size in zip(rows, wanted, strict=True) if size == places]
            stay = {row.spot for row in here if row.stays_on(shelf)}
            staying = arranged(len(shelf.rows), set(range(len(shelf.rows))) - stay)
            plans.append((shelf, staying, [row for row in here if not row.stays_on(shelf)]))
        for layer in range(len(self._nothing_Y2KLD)):
            # All are looked up before anything is moved: a row that parts may come where it lay.
            brought = [[row.states(layer) for row in coming] for _, _, coming in plans]
            for (shelf, staying, _), states in zip(plans, brought, strict=True):
                shelf.hold(layer, staying, states)
        for shelf, staying, coming in plans:
            shelf.rows = [*(shelf.rows[old] for old in staying), *coming]
            for spot, row in enumerate(shelf.rows):
                row.lie(shelf, spot)
        self._shelves = [shelf for shelf, _, _ in reversed(plans) if shelf.rows]
        self._rows = rows
        self._order = None

    def _part_few(self) -> bool:
        """Take rows from their roots where too few stand on each; whether there were any.

        All or none: what stood apart would lie on a shelf of its own, which is as much to do.
        """
        by_root = _by_root(self._rows)
        beginnings = [(root.length, len(standing)) for root, standing in by_root.items()]
        if not beginnings or self._pays_to_share(beginnings):
            return False
        for standing in by_root.values():
            for row in standing:
                row.part()
        return True

    def _places(self, rows: Sequence[ShelvedRow]) -> list[int]:
        """How many places the shelf of each row has."""
        needed = [_size(row.length + 1) for row in rows]
        held = [0 if row.shelf is None else row.shelf.places for row in rows]
        places = [max(pair) for pair in zip(needed, held, strict=True)]
        return places if self._apart else [max(places, default=0)] * len(rows)

    def _find_order(self) -> Order:
        device = self._nothing_Y2KLD.device
        numbers = {id(row): number for number, row in enumerate(self._rows)}
        lying = [row for shelf in self._shelves for row in shelf.rows]
        from_B = torch.tensor([numbers[id(row)] for row in lying], device=device)
        return Order(
            from_B=from_B,
            back_B=from_B.argsort(),
            starts_B=torch.tensor([row.start for row in lying], device=device),
            sharing=_sharing(lying, device),
        )


def _sharing(lying: Sequence[ShelvedRow], device: torch.device) -> Sharing | None:
    """The rows that stand on roots, by their places in `lying`; None where no row does."""
    by_root = _by_root(lying)
    if not by_root:
        return None
    places = {id(row): place for place, row in enumerate(lying)}
    flat = [places[id(row)] for each in by_root.values() for row in each]
    return Sharing(
        rows_R=torch.tensor(flat, device=device),
        roots=tuple((root, len(each)) for root, each in by_root.items()),
    )


def _by_root(rows: Iterable[ShelvedRow]) -> dict[Prefix, list[ShelvedRow]]:
    """The rows that stand on each root."""
    found: dict[Prefix, list[ShelvedRow]] = {}
    for row in rows:
        if row.stands_on is not None:
            found.setdefault(row.stands_on, []).append(row)
    return found


def _states_after(prefix: Prefix, root: Prefix | None) -> Tensor:
    """What a prefix has read after a root's, [Y, 2, K, L, D]; the root may be itself."""
    own_Y2KLD = prefix.own
    return own_Y2KLD[:, :, :, own_Y2KLD.shape[3] - prefix.after(root) :]


def _size(places: int) -> int:
    """The size of the shelf for rows of so many places.

    >>> _size(129)
    256
    """
    size = SMALLEST
    while size < places:
        size *= 2
    return size
