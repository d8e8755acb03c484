"""What a recipe may say about steering. Free of torch; nothing is steered unless it is asked
for."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Magnitude, Settings
from forethought.learning.control.presets import PRESETS, ClipBounds, ModelSize

OVER_A_STAGE = ("linear-floor", "cosine")
"""The schedules that depend on how many steps a stage has."""


class BandSettings(Settings):
    """The entropies between which nothing needs to be done."""

    unit: Literal["initial", "nats"] = "initial"
    """initial: shares of the first entropy that the run measured; nats: entropies as they are."""
    low: Magnitude = 0.5
    """Below it a policy is taken to collapse."""
    high: Magnitude = 1.5
    """Above it a policy is taken to come apart."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low >= self.high:
            raise RecipeError(
                f"rl.control band: low = {self.low} is not below high = {self.high}; swap or "
                "part them"
            )
        return self


class ClipSettings(Settings):
    """How the upper clip goes on through a stage."""

    schedule: Literal["constant", "linear-floor", "cosine", "entropy-feedback"] = "constant"
    """constant; linear-floor: down by `fall` over the stage, but not below `floor`; cosine: from
    `start` to `floor` along half a wave; entropy-feedback: up by `step` where entropy is below the
    band, down where it is above."""
    start: Magnitude | None = None
    """The upper clip at first; the preset's if left out."""
    fall: float = Field(default=0.15, ge=0, le=1e6)
    """How far linear-floor would fall by the stage's end."""
    floor: Magnitude = 0.25
    """No schedule goes below it."""
    ceiling: Magnitude | None = None
    """entropy-feedback goes no higher; the preset's, or the start, if left out."""
    step: Magnitude = 0.005
    """entropy-feedback moves by this much."""

    def bounds(self, preset: ModelSize | None) -> ClipBounds:
        """Where the clip begins and its ceiling, the preset's where this is silent.

        Raises `RecipeError` where nobody says where it begins, or where the bounds cross.
        """
        known = None if preset is None else PRESETS[preset]
        start = self.start if known is None else self.start or known.start
        if start is None:
            raise RecipeError(
                "rl.control.clip.start is missing: set it, or name a control.preset that knows it"
            )
        ceiling = self.ceiling or max(start, known.ceiling if known else start)
        if self.schedule != "constant" and not self.floor <= start <= ceiling:
            raise RecipeError(
                f"rl.control.clip.start = {start}: it does not lie between control.clip.floor = "
                f"{self.floor} and the ceiling {ceiling}; move one of them"
            )
        return ClipBounds(start=start, ceiling=ceiling)


class EntropySettings(Settings):
    """The coefficient of the entropy term, held so that entropy stays above a target."""

    target: Magnitude = 0.2
    """Nats. Below it the term is applied, and its coefficient grows."""
    delta: float = Field(default=1e-4, gt=0, le=1e6)
    """How far the coefficient moves in a step."""
    most: float = Field(default=5e-3, gt=0, le=1e6)
    """The coefficient's largest value."""
    start: float = Field(default=0.0, ge=0)
    """The coefficient at first."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start > self.most:
            raise RecipeError(
                f"rl.control.entropy.start = {self.start}: it is above rl.control.entropy.most = "
                f"{self.most}; lower it or raise most"
            )
        return self


class KLSettings(Settings):
    """The coefficient of the KL penalty."""

    rule: Literal["adaptive", "band"] = "adaptive"
    """adaptive: towards a KL of `target`; band: less where entropy is below the band, more where it
    is above."""
    start: Magnitude
    """The coefficient at first. Both rules multiply: from 0 neither could move it."""
    most: float = Field(gt=0, le=1e6)
    """The coefficient's largest value."""
    target: Magnitude | None = None
    """adaptive, which needs it: the KL to hold, in the unit of the metric `reference_kl` (nats a
    token; published targets such as 6 are of whole sequences)."""
    horizon: PositiveInt = 10_000
    """adaptive: attempts over which a steady error moves the coefficient by about that error."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start > self.most:
            raise RecipeError(
                f"rl.control.kl.start = {self.start}: it is above control.kl.most = {self.most}; "
                "lower it or raise most"
            )
        return self

    @model_validator(mode="after")
    def _has_a_target_where_it_holds_one(self) -> Self:
        if self.rule == "adaptive" and self.target is None:
            raise RecipeError(
                'rl.control.kl.target is missing: control.kl.rule = "adaptive" holds a KL, '
                'in nats a token; set it to some, such as 0.01, or use rule = "band"'
            )
        if self.rule == "band" and self.target is not None:
            raise RecipeError(
                f'rl.control.kl.target = {self.target}: control.kl.rule = "band" goes by '
                'entropy and holds no KL; remove it or use rule = "adaptive"'
            )
        return self


class ControlSettings(Settings):
    """What is steered through a stage of reinforcement learning."""

    preset: ModelSize | None = None
    """The size of model whose published clip bounds `clip` starts from."""
    band: BandSettings = BandSettings()
    """The band of entropy-feedback and of the KL rule `band`."""
    clip: ClipSettings | None = None
    """The upper clip."""
    entropy: EntropySettings | None = None
    """The entropy coefficient."""
    kl: KLSettings | None = None
    """The KL coefficient."""

    @model_validator(mode="after")
    def _begins_somewhere(self) -> Self:
        if self.preset is not None and self.clip is None:
            raise RecipeError(
                f'rl.control.preset = "{self.preset}": it is where control.clip starts, and '
                'there is none; add control.clip (schedule = "constant" holds it) or remove the '
                "preset"
            )
        if self.clip is not None:
            self.clip.bounds(self.preset)
        return self
