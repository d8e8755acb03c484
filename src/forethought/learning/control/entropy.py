"""Entropy as a signal: a band around what a run began with, and a coefficient that holds a
target."""

from collections.abc import Mapping
from dataclasses import dataclass

from forethought.learning.control.protocol import measured
from forethought.learning.control.settings import BandSettings


@dataclass(frozen=True, slots=True)
class Band:
    """The entropies between which nothing needs to be done.

    A target in nats means something else for every model and temperature, so by default the band is
    a share of the run's own first entropy.

    >>> Band(BandSettings()).side(entropy=0.2, first=1.0)
    -1
    """

    settings: BandSettings

    def side(self, entropy: float, first: float) -> int:
        """-1 below the band, 0 within, 1 above; `first` is the first entropy that was measured."""
        unit = first if self.settings.unit == "initial" else 1.0
        if entropy < self.settings.low * unit:
            return -1
        return int(entropy > self.settings.high * unit)


@dataclass(frozen=True, slots=True)
class Coefficient:
    """The coefficient as it is held, and what of it is applied in the step that comes next."""

    held: float
    applied: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyTarget:
    """The entropy coefficient of Skywork-OR1 (2505.22312): up below a target, down from it on.

    It is applied only while entropy is below the target. A `Rule`.
    """

    target: float
    delta: float
    most: float
    start: float = 0.0

    def begin(self) -> Coefficient:
        """The start; nothing is applied before entropy is known."""
        return Coefficient(held=self.start)

    def step(self, state: Coefficient, metrics: Mapping[str, float]) -> Coefficient:
        """Move by `delta`, within 0 and `most`; a step without entropy changes nothing."""
        entropy = measured(metrics, "entropy")
        if entropy is None:
            return state
        low = entropy < self.target
        moved = state.held + (self.delta if low else -self.delta)
        coefficient = min(self.most, max(0.0, moved))
        return Coefficient(held=coefficient, applied=coefficient if low else 0.0)

    def settings(self, state: Coefficient) -> dict[str, float]:
        """What is applied."""
        return {"entropy_coefficient": state.applied}
