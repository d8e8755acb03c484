"""What a recipe may say about the reinforcement loss. Free of torch, so that recipes load fast."""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings, Weight

LossName = Literal[
    "grpo",
    "grpo_t",
    "grpo_tcr",
    "grpo_scr",
    "grpo_turn",
    "dapo",
    "dr_grpo",
    "cispo",
    "reinforce",
    "sapo",
    "gmpo",
    "dppo_tv",
]

AggregationName = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
]

PenaltyName = Literal["k2", "k3", "k3+", "k3_off_policy", "abs"]

OWN_AGGREGATIONS: dict[LossName, AggregationName] = {
    "grpo": "seq-mean-token-mean",
    "grpo_t": "token-mean",
    "grpo_tcr": "token-mean",
    "grpo_scr": "seq-mean-token-mean",
    "grpo_turn": "seq-mean-token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "cispo": "token-mean",
    "reinforce": "seq-mean-token-sum",
    "sapo": "seq-mean-token-mean",
    "gmpo": "seq-mean-token-mean",
    "dppo_tv": "token-mean",
}
"""How each loss becomes one number where a recipe is silent."""

NARROW: tuple[LossName, ...] = ("grpo_scr", "grpo_turn")
"""Clipped in ratios of sequences or turns, which hardly move: by thousandths, not by tenths."""

OF_SEQUENCES: tuple[LossName, ...] = ("grpo_scr", "gmpo")
"""One ratio a sequence: defined for their own aggregation only."""

TOKEN_CLIPPED: tuple[LossName, ...] = ("grpo", "grpo_t", "grpo_tcr", "dapo", "dr_grpo")
"""The clipped surrogate of token ratios."""

CLIPPED: tuple[LossName, ...] = (
    *TOKEN_CLIPPED,
    "grpo_scr",
    "grpo_turn",
    "cispo",
    "gmpo",
    "dppo_tv",
)

APPLIES: dict[str, tuple[str, tuple[LossName, ...]]] = {
    "clip_low": ("lower clip", CLIPPED),
    "clip_high": ("upper clip", CLIPPED),
    "dual_clip": ("dual clip", TOKEN_CLIPPED),
    "cispo_cap_abs": ("absolute cap", ("cispo",)),
    "importance_cap": ("importance weight", ("reinforce",)),
    "tau_positive": ("sigmoid", ("sapo",)),
    "tau_negative": ("sigmoid", ("sapo",)),
    "drift_coefficient": ("drift penalty", ("dppo_tv",)),
}
"""The keys that not every loss has: in words, and whose they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A clip with every choice made. `dual_clip = 0` is none.

    >>> Terms(clip_low=0.2, clip_high=0.28, dual_clip=10.0).clip_high
    0.28
    """

    clip_low: float
    clip_high: float
    dual_clip: float = 0.0


class LossSettings(Settings):
    """The loss and what it departs in from the algorithm's own terms (None: its own)."""

    name: LossName = "grpo_tcr"
    """Which algorithm. One ratio a token: grpo, grpo_t, grpo_tcr, dapo, dr_grpo, cispo, sapo,
    dppo_tv; one a turn: grpo_turn; one a sequence: grpo_scr, gmpo, and as a weight reinforce."""
    clip_low: float | None = Field(default=None, ge=0, lt=1)
    """The ratio counts no lower than 1 - clip_low (gmpo: exp(-clip_low); dppo_tv: a probability
    may fall by this much)."""
    clip_high: Weight | None = None
    """The ratio counts no higher than 1 + clip_high (gmpo: exp(clip_high); dppo_tv: a probability
    may rise by this much)."""
    dual_clip: Weight | None = None
    """Caps the loss of a token with negative advantage at this many advantages; 0: no cap."""
    cispo_cap_abs: float | None = Field(default=None, ge=1, le=1e6)
    """cispo: the ratio counts no higher than this, in place of 1 + clip_high."""
    importance_cap: float | None = Field(default=None, ge=1, le=1e6)
    """reinforce: a sequence weighs by the ratio of all its tokens together, at most this (None:
    2)."""
    tau_positive: float | None = Field(default=None, gt=0, le=1e6)
    """sapo: how fast the gradient fades as the ratio leaves 1, for a positive advantage."""
    tau_negative: float | None = Field(default=None, gt=0, le=1e6)
    """sapo: the same for an advantage that is not positive."""
    drift_coefficient: Weight | None = None
    """dppo_tv: weight of the squared log-ratio."""
    entropy_coefficient: Weight = 0.0
    """What a nat of entropy is worth beside the loss, aggregated like it; 0: nothing."""
    kl_coefficient: Weight = 0.0
    """Weight of the KL penalty against the reference policy; 0 needs no reference."""
    kl_estimator: PenaltyName = "k3"
    """What the penalty's gradient is: k2 and k3+ of the reverse KL, k3 of the forward KL,
    k3_off_policy of the reverse KL also after updates, abs of twice the total variation."""
    aggregation: AggregationName | None = None
    """How token losses become one number."""

    @field_validator("kl_estimator", mode="before")
    @classmethod
    def _refuse_k1(cls, value: object) -> object:
        if value == "k1":
            raise RecipeError(
                "rl.loss.kl_estimator = k1: its gradient in a loss is zero on average, so it would "
                "penalise nothing; use k2 (reverse KL) or k3 (forward KL)"
            )
        return value

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        for key, (words, names) in APPLIES.items():
            value = getattr(self, key)
            # A dual clip of 0 is none, which every loss can do.
            if value is None or self.name in names or (key == "dual_clip" and not value):
                continue
            raise RecipeError(
                f"rl.loss.{key} = {value}: {self.name} has no {words}; remove it or use "
                f"{' or '.join(names)}"
            )
        own = OWN_AGGREGATIONS[self.name]
        if self.name in OF_SEQUENCES and self.aggregation not in (None, own):
            raise RecipeError(
                f"rl.loss.aggregation = {self.aggregation}: {self.name} is defined only for {own}; "
                "remove it or use grpo_t or grpo_tcr"
            )
        return self

    @model_validator(mode="after")
    def _refuse_what_contradicts(self) -> Self:
        if self.dual_clip and self.dual_clip <= 1:
            raise RecipeError(
                f"rl.loss.dual_clip = {self.dual_clip}: it caps ratios that are too high, so "
                "it must be above 1 (3 and 10 are usual), or 0 for none"
            )
        if self.cispo_cap_abs is not None and self.clip_high is not None:
            raise RecipeError(
                f"rl.loss.cispo_cap_abs = {self.cispo_cap_abs} and rl.loss.clip_high = "
                f"{self.clip_high}: both cap the ratio, one at itself and the other at 1 + "
                "clip_high; keep one"
            )
        return self

    @property
    def chosen_aggregation(self) -> AggregationName:
        """The recipe's aggregation, or the algorithm's own."""
        return self.aggregation or OWN_AGGREGATIONS[self.name]

    @property
    def reads_every_row(self) -> bool:
        """Whether the loss pulls at rows without an advantage too: a penalty is paid for all."""
        drifts = self.name == "dppo_tv" and self.drift_coefficient != 0
        return self.kl_coefficient > 0 or drifts

    def terms(self, own: Terms) -> Terms:
        """The algorithm's `own` terms, save where the recipe departs from them."""
        return Terms(
            clip_low=own.clip_low if self.clip_low is None else self.clip_low,
            clip_high=own.clip_high if self.clip_high is None else self.clip_high,
            dual_clip=own.dual_clip if self.dual_clip is None else self.dual_clip,
        )
