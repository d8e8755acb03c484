"""One component of a reward, by turn or of the whole attempt, and the bound on several together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What an attempt earns under a name, and where that can be told, what each turn does.

    A value that is not known is NaN. `by_turn` has one number a turn, trajectory after trajectory;
    it is empty for a component of the whole attempt.

    >>> Component.of_turns("retrieval", (0.5, 0.0), 0.25).total
    0.125
    """

    name: str
    total: float
    by_turn: tuple[float, ...] = ()

    @classmethod
    def of_turns(cls, name: str, values: Sequence[float], weight: float) -> "Component":
        """A component whose total is the sum of what turns earn: `weight` times each value."""
        by_turn = tuple(weight * value for value in values)
        return cls(name=name, total=math.fsum(by_turn), by_turn=by_turn)

    @property
    def size(self) -> float:
        """How far the component can move a reward: turns that cancel each other out do not hide."""
        known = [abs(value) for value in self.by_turn or (self.total,) if not math.isnan(value)]
        return math.fsum(known)

    def times(self, factor: float) -> "Component":
        """The component, smaller or larger throughout."""
        by_turn = tuple(factor * value for value in self.by_turn)
        return Component(name=self.name, total=factor * self.total, by_turn=by_turn)


def bounded(parts: Sequence[Component], most: float) -> tuple[Component, ...]:
    """The components, all shrunk by one factor where their sizes add up to more than `most`.

    >>> parts = [Component(name="a", total=3.0), Component(name="b", total=-1.0)]
    >>> [part.total for part in bounded(parts, 1.0)]
    [0.75, -0.25]
    """
    size = math.fsum(part.size for part in parts)
    if size <= most:
        return tuple(parts)
    return tuple(part.times(max(0.0, most) / size) for part in parts)
