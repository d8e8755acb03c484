"""How the upper clip goes on through a stage: by its step, or by entropy.

A wider upper clip lets unlikely tokens grow faster (DAPO, 2503.14476), so it is widened where
entropy is low and narrowed where it is high. That feedback is this project's own; linear and cosine
are plain schedules.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forethought.learning.control.entropy import Band
from forethought.learning.control.protocol import measured


def linear_floor(step: int, total: int, *, start: float, fall: float, floor: float) -> float:
    """A straight line from `start`, down by `fall` over `total` steps, but never below `floor`.

    >>> linear_floor(800, 1000, start=0.35, fall=0.15, floor=0.25)
    0.25
    """
    return max(start - fall * step / total, floor)


def cosine(step: int, total: int, *, start: float, floor: float) -> float:
    """Half a cosine wave from `start` to `floor` over `total` steps, and `floor` from then on.

    >>> [round(cosine(step, 10, start=0.3, floor=0.2), 9) for step in (0, 5, 12)]
    [0.3, 0.25, 0.2]
    """
    done = min(1.0, step / total)
    return floor + (start - floor) * 0.5 * (1.0 + math.cos(math.pi * done))


@dataclass(frozen=True, slots=True)
class Position:
    """How many steps are done."""

    step: int = 0


@dataclass(frozen=True, slots=True)
class ClipSchedule:
    """The upper clip as a function of the step (a `Rule`)."""

    curve: Callable[[int], float]

    def begin(self) -> Position:
        """Before the first step."""
        return Position()

    def step(self, state: Position, metrics: Mapping[str, float]) -> Position:
        """One step on, whatever it came to."""
        return Position(state.step + 1)

    def settings(self, state: Position) -> dict[str, float]:
        """The upper clip of the step that comes next."""
        return {"clip_high": self.curve(state.step)}


@dataclass(frozen=True, slots=True)
class Steered:
    """A value that entropy moves, and the first entropy that was measured (None: none yet)."""

    value: float
    first: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByEntropy:
    """A setting that moves with the side of a band on which entropy lies (a `Rule`)."""

    name: str
    start: float
    band: Band
    move: Callable[[float, int], float]
    """What follows a value: -1 below the band, 0 within, 1 above."""

    def begin(self) -> Steered:
        """The start; no entropy is known."""
        return Steered(value=self.start)

    def step(self, state: Steered, metrics: Mapping[str, float]) -> Steered:
        """Move by the entropy, where it was measured."""
        entropy = measured(metrics, "entropy")
        if entropy is None:
            return state
        first = entropy if state.first is None else state.first
        value = self.move(state.value, self.band.side(entropy, first))
        return Steered(value=value, first=first)

    def settings(self, state: Steered) -> dict[str, float]:
        """The one setting."""
        return {self.name: state.value}


def entropy_clip(
    *, start: float, floor: float, ceiling: float, delta: float, band: Band
) -> ByEntropy:
    """The upper clip: up by `delta` below the band, down above it, from `floor` to `ceiling`."""

    def move(value: float, side: int) -> float:
        return min(ceiling, max(floor, value - delta * side))

    return ByEntropy(name="clip_high", start=start, band=band, move=move)


def entropy_kl(*, start: float, most: float, band: Band) -> ByEntropy:
    """The KL coefficient: less by a tenth below the band and more by a tenth above, to `most`."""

    def move(value: float, side: int) -> float:
        return min(most, value * (0.9, 1.0, 1.1)[side + 1])

    return ByEntropy(name="kl_coefficient", start=start, band=band, move=move)
