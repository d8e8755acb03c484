"""What conversations begin with: read once for all that begin so, and lent where it fits.

Openings lie in the order of their ids, where those that begin most alike are neighbours.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field

from torch import Tensor

from forethought.policy.local.prefixes import Prefix, alike
from forethought.policy.local.slots import PaysToShare
from forethought.policy.local.turns import Row

BORROWED_FROM = 32
"""Tokens from which on it pays to begin with what another opening has read."""
EXPECTED = 8
"""Rows that will begin alike, as long as that is not known."""


@dataclass(slots=True, kw_only=True, eq=False)
class Reading:
    """A prefix on its way to `ids`, and the rows that will go on from there."""

    prefix: Prefix
    ids: tuple[int, ...]
    rows: list[Row] = field(default_factory=list[Row])
    is_root: bool = False

    @property
    def missing(self) -> int:
        """How many tokens have not been read."""
        return len(self.ids) - self.prefix.length


class Openings:
    """The openings of a batch. Of those that nobody waits for, up to `kept` tokens are kept.

    `nothing_Y2KLD` is what a model has made of no token; `pays_to_share` says whether
    rows that begin with so many tokens attend to them once for all.
    """

    def __init__(self, nothing_Y2KLD: Tensor, pays_to_share: PaysToShare, kept: int) -> None:
        self._nothing = nothing_Y2KLD
        self._pays_to_share = pays_to_share
        self._kept = kept
        self._all = OrderedDict[tuple[int, ...], Reading]()  # the latest last
        self._begun: list[tuple[int, ...]] = []  # sorted

    def open(self, context: tuple[int, ...]) -> Reading:
        """The reading of an opening, begun by whoever asked for it first."""
        reading = self._all.get(context)
        if reading is None:
            prefix = Prefix(ids=[], states_Y2KLD=self._nothing)
            reading = self._all[context] = Reading(prefix=prefix, ids=context)
        self._all.move_to_end(context)
        return reading

    def lender(self, ids: tuple[int, ...]) -> tuple[Prefix | None, int]:
        """What has been read that begins most like `ids`, and in how many tokens.

        Tools are announced alike.
        """
        best, length = None, 0
        place = bisect_left(self._begun, ids)
        for places in (range(place - 1, -1, -1), range(place, len(self._begun))):
            for context in map(self._begun.__getitem__, places):
                if alike(context, ids) <= length:
                    break  # and those farther off even less
                near = self._all[context].prefix
                if (common := alike(near.ids, ids)) > length:
                    best, length = near, common
        return best, length

    def begin(self, reading: Reading, lender: Prefix | None, length: int) -> None:
        """Begin a reading, with the tokens that a lender begins with if they are worth it."""
        if self._all.get(reading.ids) is reading:
            insort(self._begun, reading.ids)
        if lender is None or length < BORROWED_FROM:
            return
        roots = dict.fromkeys(each.prefix.root for each in self._all.values())
        fitting = [root for root in roots if root and alike(root.ids, reading.ids) == root.length]
        longest = max(fitting, key=lambda root: root.length, default=reading.prefix)
        # Rows of one root are the faster the more they are: better one root than two longer ones.
        near = length - longest.length < BORROWED_FROM
        reading.prefix.begin_as(longest if near else lender.first(length))
        if not self._pays_to_share([(reading.prefix.length, EXPECTED)]):
            reading.prefix.settle()

    def forget_old(self) -> None:
        """Keep the latest of the openings that nobody waits for any more."""
        finished = [context for context, each in self._all.items() if not each.rows]
        held = sum(map(len, finished))
        for context in finished:
            if held <= self._kept:
                return
            del self._all[context]
            place = bisect_left(self._begun, context)
            if self._begun[place : place + 1] == [context]:
                del self._begun[place]
            held -= len(context)
