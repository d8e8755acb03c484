"""Which replicas have halted between two rounds, and of whom each still has to hear."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Rounds:
    """A replica, known by its place, halts by itself, and goes on when it is told of turns.

    It may be told once each conversation whose turn ended has asked for the next one or left:
    until then it is not known which turns the next round has.
    """

    _halted: set[int] = field(default_factory=set[int])
    _open: dict[int, set[int]] = field(default_factory=dict[int, set[int]])

    def halt(self, place: int) -> None:
        """The replica has halted, or has not begun yet."""
        self._halted.add(place)

    def begin(self, place: int) -> None:
        """The replica is told of turns."""
        self._halted.discard(place)

    def end(self, place: int, seat: int) -> None:
        """A turn has ended, and what its conversation does next is open."""
        self._open.setdefault(place, set()).add(seat)

    def settle(self, place: int | None, seat: int) -> None:
        """The conversation has asked for a turn, or left."""
        if place in self._open:
            self._open[place].discard(seat)

    def lose(self, place: int) -> None:
        """The replica is no more."""
        self._halted.discard(place)
        self._open.pop(place, None)

    @property
    def complete(self) -> set[int]:
        """The replicas that can go on."""
        return {place for place in self._halted if not self._open.get(place)}
