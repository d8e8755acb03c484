"""What a recipe may say about samples from other log-probabilities than the learner's own."""

from typing import Literal, Self

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Magnitude, Settings

WeightName = Literal["none", "token_tis", "sequence_tis", "icepop", "sequence_mis"]

Bounds = tuple[Magnitude, Magnitude]

CAPPED: tuple[WeightName, ...] = ("token_tis", "sequence_tis")
OWN_CAP = 2.0
OWN_BOUNDS: dict[WeightName, Bounds] = {"icepop": (0.5, 5.0), "sequence_mis": (0.5, 2.0)}


class CorrectionSettings(Settings):
    """Weights for, and rejection of, what the sampler saw otherwise than the learner."""

    weight: WeightName = "none"
    """How a token is weighted by its ratio, learner to sampler: capped (token_tis), that of its
    sequence capped (sequence_tis), 0 outside bounds (icepop), that of its sequence 0 outside
    bounds (sequence_mis)."""
    cap: Magnitude | None = None
    """token_tis, sequence_tis: the largest weight (None: 2)."""
    bounds: Bounds | None = None
    """icepop, sequence_mis: where a weight is not 0 (None: 0.5 to 5, and 0.5 to 2)."""
    normalize: bool = False
    """Whether weights are divided by their mean over the step."""
    sequence_bounds: Bounds | None = None
    """Reject a sequence whose ratio, the product of its tokens', is outside."""
    geometric_bounds: Bounds | None = None
    """Reject a sequence whose geometric mean of ratios is outside; 0.999 to 1.001 is usual."""
    most_k3: Magnitude | None = None
    """Reject a sequence whose mean k3 divergence is above; 0.001 to 0.01 is usual."""
    veto_below: float | None = Field(default=None, gt=0, lt=1)
    """Reject a sequence with a token whose ratio is below; 1e-4 is usual."""
    opsm_delta: Magnitude | None = None
    """Give weight 0 to tokens with a negative advantage in a sequence that the learner finds less
    likely than the sampler did by more than this, per token and in nats."""

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        if self.cap is not None and self.weight not in CAPPED:
            raise RecipeError(
                f"rl.off_policy.correction.cap = {self.cap}: weight = {self.weight} has no "
                f"cap; remove it or use {' or '.join(CAPPED)}"
            )
        if self.bounds is not None and self.weight not in OWN_BOUNDS:
            raise RecipeError(
                f"rl.off_policy.correction.bounds = {self.bounds}: weight = {self.weight} has "
                f"no bounds; remove them or use {' or '.join(OWN_BOUNDS)}"
            )
        if self.normalize and self.weight == "none":
            raise RecipeError(
                "rl.off_policy.correction.normalize = true: there are no weights to divide "
                "by their mean; set rl.off_policy.correction.weight or remove it"
            )
        return self

    @model_validator(mode="after")
    def _refuse_bounds_that_hold_nothing(self) -> Self:
        for key in ("bounds", "sequence_bounds", "geometric_bounds"):
            found: Bounds | None = getattr(self, key)
            if found is not None and found[0] >= found[1]:
                raise RecipeError(
                    f"rl.off_policy.correction.{key} = {found}: the lower bound must be below "
                    "the upper one; exchange them"
                )
        return self

    @property
    def chosen_bounds(self) -> tuple[float, float]:
        """Between which ratios a weight is the ratio itself.

        Without weights these are IcePop's own, by which disagreement is then counted.
        """
        if self.weight in CAPPED:
            return 0.0, OWN_CAP if self.cap is None else self.cap
        if self.bounds is not None:
            return self.bounds
        return OWN_BOUNDS.get(self.weight, OWN_BOUNDS["icepop"])
