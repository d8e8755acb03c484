"""What a recipe may say about the reinforcement loss. Free of torch, so that recipes load fast."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings

LossName = Literal["grpo_t", "grpo_tcr", "grpo_scr"]

AggregationName = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A clipped objective with every choice made. `dual_clip = 0` is none.

    >>> Terms(clip_low=0.2, clip_high=0.28, dual_clip=10.0, aggregation="token-mean").clip_high
    0.28
    """

    clip_low: float
    clip_high: float
    dual_clip: float
    aggregation: AggregationName


class LossSettings(Settings):
    """The loss and what it departs in from the algorithm's own terms (None: its own)."""

    name: LossName = "grpo_tcr"
    """Which algorithm: token ratios (grpo_t, grpo_tcr) or one ratio a sequence (grpo_scr)."""
    clip_low: float | None = Field(default=None, ge=0, lt=1)
    """The ratio counts no lower than 1 - clip_low."""
    clip_high: float | None = Field(default=None, ge=0)
    """The ratio counts no higher than 1 + clip_high."""
    dual_clip: float | None = Field(default=None, ge=0)
    """Caps the loss of a token with negative advantage at this many advantages; 0: no cap."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty against the reference policy; 0 needs no reference."""
    kl_estimator: Literal["k2", "k3"] = "k3"
    """k2 has the exact gradient of the reverse KL, k3 that of the forward KL."""
    aggregation: AggregationName | None = None
    """How token losses become one number."""

    @field_validator("kl_estimator", mode="before")
    @classmethod
    def _refuse_k1(cls, value: object) -> object:
        if value == "k1":
            raise RecipeError(
                "loss.kl_estimator = k1: its gradient in a loss is zero on average, so it would "
                "penalise nothing; use k2 (reverse KL) or k3 (forward KL)"
            )
        return value

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        if self.dual_clip and self.dual_clip <= 1:
            raise RecipeError(
                f"loss.dual_clip = {self.dual_clip}: it caps ratios that are too high, so it must "
                "be above 1 (3 and 10 are usual), or 0 for none"
            )
        if self.kl_estimator != "k3" and not self.kl_coefficient:
            raise RecipeError(
                f"loss.kl_estimator = {self.kl_estimator}: there is no KL penalty to estimate; "
                "set loss.kl_coefficient above 0 or remove it"
            )
        if self.name == "grpo_scr":
            self._refuse_token_terms()
        return self

    def _refuse_token_terms(self) -> None:
        if self.dual_clip:
            raise RecipeError(
                f"loss.dual_clip = {self.dual_clip}: grpo_scr clips one ratio a sequence and has "
                "no dual clip; remove it or use grpo_tcr"
            )
        if self.aggregation not in (None, "seq-mean-token-mean"):
            raise RecipeError(
                f"loss.aggregation = {self.aggregation}: grpo_scr is defined only for "
                "seq-mean-token-mean; remove it or use grpo_t or grpo_tcr"
            )

    def terms(self, own: Terms) -> Terms:
        """The algorithm's `own` terms, save where the recipe departs from them."""
        return Terms(
            clip_low=own.clip_low if self.clip_low is None else self.clip_low,
            clip_high=own.clip_high if self.clip_high is None else self.clip_high,
            dual_clip=own.dual_clip if self.dual_clip is None else self.dual_clip,
            aggregation=self.aggregation or own.aggregation,
        )
