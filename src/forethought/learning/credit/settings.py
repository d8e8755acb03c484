"""What a recipe may say about credit. Free of torch, so that recipes load fast."""

from typing import Literal, Self

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Magnitude, Settings, Weight
from forethought.learning.advantage import AdvantageName, AdvantageSettings

CreditName = Literal["outcome", "merged", "mt_grpo", "turn_rtg", "turn_rloo", "gigpo", "gae"]
CreditChoice = CreditName | Literal["auto"]

USES: dict[str, tuple[CreditName, ...]] = {
    "discount": ("mt_grpo", "turn_rtg", "turn_rloo", "gigpo", "gae"),
    "turn_weight": ("merged", "mt_grpo", "gigpo"),
    "form": ("mt_grpo",),
    "episode_over": ("gigpo",),
    "baseline": ("turn_rloo",),
    "critic": ("gae",),
}
"""The settings that not every type reads, and the types that do."""

OF_RETURNS: tuple[CreditName, ...] = ("turn_rtg", "turn_rloo", "gigpo")
"""The types that credit a turn with all that comes from it on, and with nothing from before it."""

COMPARED_BY: dict[CreditChoice, tuple[AdvantageName, ...]] = {
    "merged": (
        "grpo",
        "dr_grpo",
        "batch_scaled",
        "rloo",
        "opo",
        "passk_lead",
        "reinforce_pp",
        "reinforce_pp_baseline",
    ),
    "mt_grpo": ("grpo", "dr_grpo"),
    "turn_rtg": ("grpo", "dr_grpo", "rloo"),
    "gigpo": ("grpo", "dr_grpo"),
}
"""The ways of comparing that a type allows, where it does not allow them all.

merged makes one number of an attempt's rewards, and neither gdpo, which compares each of them
apart, nor passk and maxrl, which go by verdicts, would compare that number.
"""


class CriticSettings(Settings):
    """A value head beside the policy, and how it judges."""

    trace: float = Field(default=1.0, ge=0, le=1)
    """lambda of generalised advantages: 1 trusts returns, 0 the critic's next value."""
    rate: float = Field(default=0.05, gt=0, le=1e3)
    """About how far a value moves in an optimiser step of the head."""
    coefficient: float = Field(default=0.5, gt=0, le=1e6)
    """Weight of the critic's loss, which also moves the layers that both share."""
    clip: Magnitude = 0.5
    """How far a value may move in a round before its loss no longer rewards it."""


class CreditSettings(Settings):
    """How attempts are compared, and what each of their turns gets of what comes of it."""

    type: CreditChoice = "auto"
    """auto: turn_rloo where turns earn or lose something of their own, all of it settled when they
    end, and `advantage` is left as it is, otherwise outcome; outcome: one advantage an attempt;
    merged: the same, with a weight on what turns earned; turn_rloo: one a turn, for attempts of any
    number of turns; turn_rtg: one a turn, compared by turn number, which pays later turns less;
    mt_grpo: for attempts with equally many turns; gigpo: an advantage of the attempt and one of
    each turn's state; gae: one a token, from rewards at the ends of turns and a critic."""
    discount: float | None = Field(default=None, gt=0, le=1)
    """What a reward one turn later counts (turn_rloo, turn_rtg, mt_grpo, gigpo), or one token later
    (gae); none: 0.95 for gigpo, otherwise 1."""
    turn_weight: Weight = 1.0
    """Weight of what turns earned (merged), or of the turns' part of an advantage (gigpo, mt_grpo
    in its released form)."""
    form: Literal["paper", "released"] = "paper"
    """mt_grpo as printed, or as in its authors' code: at most two turns, weight on the first."""
    episode_over: Literal["turns", "attempts"] = "turns"
    """Whether a long attempt counts once a turn or once where gigpo compares whole attempts."""
    baseline: Literal["reached", "all"] = "reached"
    """Whose mean return turn_rloo subtracts: that of the others that reached the turn too, or that
    of all others, where one that has ended counts 0. With `all`, groups whose outcomes are
    equal move the policy too."""
    advantage: AdvantageSettings = AdvantageSettings()
    """How attempts of one group are compared."""
    critic: CriticSettings = CriticSettings()
    """gae: the critic."""

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        for name, types in USES.items():
            value: object = getattr(self, name)
            if self.type not in types and value != type(self).model_fields[name].default:
                raise RecipeError(
                    f"rl.credit.{name} = {value}: {self.type} has no use for it; remove it or use "
                    f"one of {', '.join(types)}"
                )
        if self.type == "mt_grpo":
            self._refuse_another_form()
        self._refuse_another_comparison()
        return self

    def _refuse_another_form(self) -> None:
        if self.form == "paper" and self.turn_weight != 1.0:
            raise RecipeError(
                f"rl.credit.turn_weight = {self.turn_weight}: mt_grpo as printed discounts "
                "what comes later and weighs nothing; set credit.discount, or "
                'credit.form = "released"'
            )
        if self.form == "released" and self.discount is not None:
            raise RecipeError(
                f"rl.credit.discount = {self.discount}: mt_grpo as released weighs the first "
                "turn and discounts nothing; set credit.turn_weight, or "
                'credit.form = "paper"'
            )

    def _refuse_another_comparison(self) -> None:
        if self.type == "turn_rloo" and self.advantage != AdvantageSettings():
            raise RecipeError(
                'rl.credit.type = "turn_rloo": it subtracts the mean of the other attempts and '
                "divides by nothing, so rl.credit.advantage has no say; remove that table, or use "
                "turn_rtg"
            )
        if self.type == "gae" and self.advantage != AdvantageSettings():
            raise RecipeError(
                'rl.credit.type = "gae": a critic says what was to be expected, so '
                "rl.credit.advantage has no say; remove that table, or use credit.type = outcome"
            )
        kind = self.advantage.kind
        allowed = COMPARED_BY.get(self.type, (kind,))
        if kind not in allowed:
            raise RecipeError(
                f'rl.credit.advantage.kind = "{kind}": rl.credit.type = "{self.type}" compares '
                f"by one of {', '.join(allowed)}; use one of these, or credit.type = outcome"
            )

    def chosen(self, *, turns_earn: bool) -> CreditName:
        """The type that holds, where turns earn something that is settled when they end, or not.

        >>> [CreditSettings().chosen(turns_earn=earn) for earn in (True, False)]
        ['turn_rloo', 'outcome']
        """
        if self.type != "auto":
            return self.type
        return "turn_rloo" if turns_earn and self.advantage == AdvantageSettings() else "outcome"

    @property
    def decay(self) -> float:
        """The discount that holds."""
        if self.discount is not None:
            return self.discount
        return 0.95 if self.type == "gigpo" else 1.0
