"""A KL coefficient that holds a KL (Ziegler et al., 1909.08593, section 2.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from forethought.learning.control.protocol import measured

LARGEST_ERROR = 0.2


def adapted(coefficient: float, kl: float, *, target: float, samples: int, horizon: int) -> float:
    """The coefficient after `samples` attempts whose mean KL was `kl`.

    >>> adapted(0.2, 9.0, target=6.0, samples=256, horizon=10_000)
    0.201024
    """
    error = min(LARGEST_ERROR, max(-LARGEST_ERROR, kl / target - 1.0))
    return coefficient * (1.0 + error * samples / horizon)


@dataclass(frozen=True, slots=True)
class KLCoefficient:
    """The coefficient in force."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveKL:
    """More where the KL is above its target, less where it is below (a `Rule`)."""

    start: float
    most: float
    target: float
    horizon: int
    samples: int

    def begin(self) -> KLCoefficient:
        """The start."""
        return KLCoefficient(self.start)

    def step(self, state: KLCoefficient, metrics: Mapping[str, float]) -> KLCoefficient:
        """One step by `reference_kl`; a step without it changes nothing."""
        kl = measured(metrics, "reference_kl")
        if kl is None:
            return state
        value = adapted(
            state.value, kl, target=self.target, samples=self.samples, horizon=self.horizon
        )
        return KLCoefficient(min(self.most, value))

    def settings(self, state: KLCoefficient) -> dict[str, float]:
        """The KL coefficient."""
        return {"kl_coefficient": state.value}
