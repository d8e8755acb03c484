"""All that is steered in one stage, by name: built from a recipe, observed and kept as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from forethought.core.errors import RecipeError
from forethought.learning.control.clip import (
    ClipSchedule,
    cosine,
    entropy_clip,
    entropy_kl,
    linear_floor,
)
from forethought.learning.control.entropy import Band, EntropyTarget
from forethought.learning.control.kl import AdaptiveKL
from forethought.learning.control.presets import ModelSize
from forethought.learning.control.protocol import Controller, held
from forethought.learning.control.settings import (
    BandSettings,
    ClipSettings,
    ControlSettings,
    EntropySettings,
    KLSettings,
)


@dataclass(frozen=True, slots=True)
class Controllers:
    """Controllers by name, as one (itself a `Controller`). They steer different settings.

    >>> Controllers({}).observe({"entropy": 0.5})
    {}
    """

    by_name: Mapping[str, Controller]

    @property
    def settings(self) -> dict[str, float]:
        """The settings in force, of all."""
        return {
            name: value for each in self.by_name.values() for name, value in each.settings.items()
        }

    def observe(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Let each take in a step's metrics; the settings of the next step."""
        for each in self.by_name.values():
            each.observe(metrics)
        return self.settings

    @property
    def figures(self) -> dict[str, float]:
        """The settings in force as metrics."""
        return {f"control/{name}": value for name, value in self.settings.items()}

    @property
    def state(self) -> dict[str, Any]:
        """The state of each, by name."""
        return {name: each.state for name, each in self.by_name.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put each state back. Raises `RecipeError` where others were at work."""
        if set(state) != set(self.by_name):
            raise RecipeError(
                f"control: the checkpoint was steered by {_named(state)}, the recipe asks for "
                f"{_named(self.by_name)}: go on with the recipe that it was made with"
            )
        for name, each in self.by_name.items():
            each.restore(state[name])


def build_controllers(settings: ControlSettings, *, steps: int, samples: int) -> Controllers:
    """What `settings` ask for, over a stage of `steps` with `samples` attempts in each."""
    found: dict[str, Controller] = {}
    if settings.clip is not None:
        found["clip"] = _clip(settings.clip, settings.preset, settings.band, steps)
    if settings.entropy is not None:
        found["entropy"] = _entropy(settings.entropy)
    if settings.kl is not None:
        found["kl"] = _kl(settings.kl, settings.band, samples)
    return Controllers(found)


def _clip(
    settings: ClipSettings, preset: ModelSize | None, band: BandSettings, steps: int
) -> Controller:
    bounds = settings.bounds(preset)
    start = bounds.start
    if settings.schedule == "entropy-feedback":
        return held(
            entropy_clip(
                start=start,
                floor=settings.floor,
                ceiling=bounds.ceiling,
                delta=settings.step,
                band=Band(band),
            )
        )
    if settings.schedule == "linear-floor":
        line = partial(
            linear_floor, total=steps, start=start, fall=settings.fall, floor=settings.floor
        )
        return held(ClipSchedule(line))
    if settings.schedule == "cosine":
        return held(ClipSchedule(partial(cosine, total=steps, start=start, floor=settings.floor)))
    return held(ClipSchedule(lambda _: start))


def _entropy(settings: EntropySettings) -> Controller:
    return held(
        EntropyTarget(
            target=settings.target,
            delta=settings.delta,
            most=settings.most,
            start=settings.start,
        )
    )


def _kl(settings: KLSettings, band: BandSettings, samples: int) -> Controller:
    if settings.target is None:  # the rule `band` has none, and the other needs one
        return held(entropy_kl(start=settings.start, most=settings.most, band=Band(band)))
    return held(
        AdaptiveKL(
            start=settings.start,
            most=settings.most,
            target=settings.target,
            horizon=settings.horizon,
            samples=samples,
        )
    )


def _named(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "nothing"
