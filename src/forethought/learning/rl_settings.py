"""Settings of reinforcement learning. How credit, loss and the rest compute is in their rooms."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.learning.control.fit import refuse_what_does_not_fit
from forethought.learning.control.settings import ControlSettings
from forethought.learning.correction.settings import CorrectionSettings
from forethought.learning.credit.selection import SelectionSettings
from forethought.learning.credit.settings import CreditName, CreditSettings
from forethought.learning.losses.settings import LossSettings
from forethought.learning.rewards import RewardSettings
from forethought.learning.settings import OptimizerSettings


class RLCheckpointSettings(Settings):
    """Which rounds leave a checkpoint, and for how long."""

    save_every: PositiveInt = 10
    """Rounds between checkpoints."""
    keep_last: PositiveInt = 2
    """Checkpoints that stay: the newest."""
    keep_best: NonNegativeInt = 0
    """Checkpoints that stay beside them, to go back to after a collapse: those with the highest
    mean accuracy of the `save_every` rounds that led to them. RL ends with its last weights."""


class RLLimitSettings(Settings):
    """What may go wrong before the run stops."""

    not_measured: float = Field(default=0.1, ge=0, le=1)
    """Share of a round's attempts that may be not measured."""
    prefix_breaks: float = Field(default=1.0, ge=0, le=1)
    """Share of a round's attempts whose prompt may once not extend what was said before (as with
    `sampling.thinking = "strip"`); 1: no limit."""
    rounds_without_update: NonNegativeInt = 10
    """Rounds in a row that may pass without an update, all of their groups being right or wrong
    throughout. Where every attempt was right, the stage then ends, done; 0: no limit."""


class RLOptimizerSettings(OptimizerSettings):
    """The optimiser with the defaults of reinforcement learning."""

    beta_2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's second moment decay."""
    updates: PositiveInt = 4
    """Optimiser steps that a round's episodes are split over."""


class OffPolicySettings(Settings):
    """What a round's updates take for the policy that sampled."""

    old: Literal["sampled", "recomputed"] = "sampled"
    """Where a ratio's denominator comes from: the sampler's own log-probabilities, or a pass of the
    learner over the round before its first update."""
    correction: CorrectionSettings = CorrectionSettings()
    """What becomes of samples of which the two differ; for `recomputed`."""

    @model_validator(mode="after")
    def _has_two_to_compare(self) -> Self:
        if self.old == "sampled" and self.correction != CorrectionSettings():
            raise RecipeError(
                'rl.off_policy.correction: with rl.off_policy.old = "sampled" the loss\'s own '
                "ratio is to the sampler, so there is nothing left to correct; set old = "
                '"recomputed" or remove the correction'
            )
        return self


class RLSettings(Settings):
    """Reinforcement learning: attempt, compare, improve."""

    steps: PositiveInt
    """Rounds of attempts."""
    problems: PositiveInt = 64
    """Problems in a round."""
    group_size: int = Field(default=16, ge=2)
    """Attempts at each problem; one alone has nothing to be compared with."""
    checkpoints: RLCheckpointSettings = RLCheckpointSettings()
    """Which rounds can be gone on from."""
    limits: RLLimitSettings = RLLimitSettings()
    """When the run stops."""
    optimizer: RLOptimizerSettings = RLOptimizerSettings()
    """The optimiser, and how many steps of it a round takes."""
    reward: RewardSettings = RewardSettings()
    """What an attempt earns."""
    credit: CreditSettings = CreditSettings()
    """How attempts of one group are compared, and whether their turns share what comes of it."""
    selection: SelectionSettings = SelectionSettings()
    """Which groups, and which of their attempts, are trained."""
    loss: LossSettings = LossSettings()
    """Which policy loss."""
    off_policy: OffPolicySettings = OffPolicySettings()
    """Which policy is the old one, and how a sampler that differs from it is corrected for."""
    control: ControlSettings = ControlSettings()
    """What of the loss is steered from round to round."""

    @property
    def credited(self) -> CreditName:
        """The type of credit that holds: what `rl.credit.type = "auto"` stands for here."""
        return self.credit.chosen(turns_earn=self.reward.turns_earn)

    @property
    def needs_critic(self) -> bool:
        """Whether a value head learns beside the policy."""
        return self.credit.type == "gae"

    @property
    def needs_reference(self) -> bool:
        """Whether the model as it was at first is asked."""
        steered = self.control.kl is not None
        return steered or self.loss.kl_coefficient > 0 or self.reward.penalties.divergence > 0

    def optimizer_steps(self, groups: int) -> int:
        """Optimiser steps of all rounds of so many groups, if no group is left out.

        A group is used once, so a round has no more updates than groups.
        """
        return self.steps * min(self.optimizer.updates, groups)

    @model_validator(mode="after")
    def _refuse_parts_that_do_not_fit(self) -> Self:
        refuse_what_does_not_fit(self.control, self.loss)
        if self.needs_critic and self.selection.uninformative == "leave_out":
            raise RecipeError(
                'rl.selection.uninformative = "leave_out": with rl.credit.type = "gae" groups of '
                "equal rewards carry a gradient too, and teach the critic what to expect; set it "
                'to "count"'
            )
        return self

    @model_validator(mode="after")
    def _steers_no_faster_than_it_measures(self) -> Self:
        kl, attempts = self.control.kl, self.problems * self.group_size
        if kl is not None and kl.rule == "adaptive" and kl.horizon < attempts:
            raise RecipeError(
                f"rl.control.kl.horizon = {kl.horizon}: a round has {attempts} attempts, and the "
                "coefficient cannot follow faster than rounds; raise the horizon to that or more"
            )
        return self

    @model_validator(mode="after")
    def _refuse_too_few_attempts(self) -> Self:
        compared = self.selection.keep or self.group_size
        if compared >= self.group_size and self.selection.keep:
            raise RecipeError(
                f"rl.selection.keep = {compared}: rl.group_size = {self.group_size} leaves nothing "
                "to choose from; raise group_size, or set keep to 0"
            )
        advantage = self.credit.advantage
        if advantage.kind == "passk" and advantage.k >= compared:
            raise RecipeError(
                f"rl.credit.advantage.k = {advantage.k}: {compared} attempts of a group are "
                "compared, and draws of as many or more are all alike; lower k or raise "
                "rl.group_size"
            )
        return self
