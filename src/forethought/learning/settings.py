"""Settings of the learner and of the two training loops."""

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from forethought.agents.groups import Flow, Waves, Window
from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.control.fit import refuse_what_does_not_fit
from forethought.learning.control.settings import ControlSettings
from forethought.learning.correction.settings import CorrectionSettings
from forethought.learning.credit.selection import SelectionSettings
from forethought.learning.credit.settings import CreditSettings, refuse_other_comparison
from forethought.learning.losses.settings import LossSettings
from forethought.learning.rewards import RewardSettings

Precision = Literal["float32", "bfloat16", "auto"]


class OptimizerSettings(Settings):
    """How a gradient becomes a step."""

    type: Literal["adamw", "muon"] = "adamw"
    """`muon` takes the hidden matrices; everything else stays with AdamW."""
    rate: float = Field(default=1e-6, gt=0, le=10)
    """AdamW's learning rate."""
    muon_rate: float = Field(default=0.02, gt=0, le=10)
    """Muon's learning rate (only with `type = "muon"`)."""
    warmup: NonNegativeInt = 0
    """Optimiser steps over which the rates rise from 0."""
    schedule: Literal["constant", "cosine"] = "constant"
    """What the rates do after warm-up, over the stage's steps."""
    floor: NonNegativeFloat = 0.1
    """Where `cosine` ends, as a share of the rate."""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's first moment decay."""
    beta_2: float = Field(default=0.95, ge=0, lt=1)
    """AdamW's second moment decay."""
    weight_decay: float = Field(default=0.01, ge=0, le=100)
    """AdamW's and Muon's decoupled weight decay."""
    clip_norm: PositiveFloat = 1.0
    """The gradient's largest norm."""


class SFTOptimizerSettings(OptimizerSettings):
    """The same with the defaults of imitation."""

    rate: float = Field(default=5e-5, gt=0, le=10)
    """AdamW's learning rate."""
    warmup: NonNegativeInt = 10
    """Optimiser steps over which the rates rise from 0."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """What the rates do after warm-up, over the stage's steps."""


class RLOptimizerSettings(OptimizerSettings):
    """The same with the defaults of reinforcement learning."""

    beta_2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's second moment decay."""


class ComputeSettings(Settings):
    """Where and in what portions to compute."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"
    """One-thread worker processes; 0 computes in this process. `auto` measures which is faster
    here, one a core or none, when a run begins, and keeps to it (`calibration.json`)."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of this process; 0 is one beside workers, and otherwise torch's own choice."""
    micro_tokens: PositiveInt = 2048
    """Tokens in one forward and backward pass."""
    logit_tokens: PositiveInt = 1024
    """Trained tokens whose logits exist at once; those of more are computed twice."""
    precision: Precision = "auto"
    """Number type of matrix multiplications, and of what passes between them. Trained weights,
    norms, log-probabilities and losses stay float32. `auto`: bfloat16 on a GPU that has it."""
    gradient_checkpointing: bool = False
    """Keep one hidden state a layer for the way back, and compute the rest of it again."""
    deterministic: bool = True
    """Turns begin together, whatever their tools took: equal runs are equal to the bit."""
    at_once: PositiveInt = 128
    """Episodes open at the same time."""

    @property
    def flow(self) -> Flow:
        """Waves where equal runs must be equal, otherwise a window that keeps everybody busy."""
        return Waves(self.at_once) if self.deterministic else Window(self.at_once)


class PhaseSettings(Settings):
    """One phase of supervised training."""

    name: str = Field(pattern=r"^\w[\w-]*$", max_length=64)
    """Names the checkpoint that the phase ends with."""
    steps: PositiveInt
    """Optimiser steps at most."""
    batch: int = Field(default=32, ge=1, le=65_536)
    """Trajectories in a step."""
    tool_free: float = Field(default=0.0, ge=0, le=1)
    """Share of trajectories that solve their problem without a call."""
    stop_at: float | None = Field(default=None, ge=0, le=1)
    """End early once the pilot's sampled accuracy reaches this."""
    optimizer: SFTOptimizerSettings = SFTOptimizerSettings()
    """The phase's own optimiser."""


class SFTSettings(Settings):
    """Cold start: phases in a row on recorded trajectories."""

    phases: tuple[PhaseSettings, ...] = Field(min_length=1)
    """What to train on, and for how long."""
    longest: PositiveInt = 32_768
    """Trajectories with more tokens are left out, and counted."""
    train_failed_calls: bool = False
    """Whether turns with a call that failed are trained; if not, they are context only."""
    pilot_every: NonNegativeInt = 0
    """Steps between pilots; 0 holds none."""
    pilot_problems: PositiveInt = 96
    """Problems of the pilot: from the training side, never trained on."""
    save_every: PositiveInt = 50
    """Steps between checkpoints."""
    keep_last: PositiveInt = 2
    """Checkpoints of a phase that stay: the newest."""
    keep_best: NonNegativeInt = 0
    """Checkpoints that stay beside them: those with the least held-out loss."""
    keep: Literal["last", "best"] = "last"
    """Whose weights a phase ends with: its last step's, or those with the least held-out loss."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the demonstrations that is never trained on, but measured; 0: none."""
    held_out_every: PositiveInt = 50
    """Steps between measurements of what is held out; a phase ends with one."""

    @property
    def best_kept(self) -> int:
        """How many checkpoints stay for their held-out loss."""
        return max(self.keep_best, int(self.keep == "best"))

    @model_validator(mode="after")
    def _measures_what_is_best(self) -> Self:
        if self.best_kept and not self.held_out:
            asked = 'keep = "best"' if self.keep == "best" else f"keep_best = {self.keep_best}"
            raise RecipeError(
                f"sft.{asked}: the best has the least held-out loss, and sft.held_out = 0 holds "
                "nothing out; set it to a share such as 0.05"
            )
        return self

    @model_validator(mode="after")
    def _tells_phases_apart(self) -> Self:
        taken = ["before", "after"]  # exams that every run has
        for phase in self.phases:
            if phase.name in taken:
                raise RecipeError(
                    f"sft.phases: the name {phase.name!r} is taken; stages and exams are named "
                    "after phases, so give each a name of its own, but not before or after"
                )
            taken.append(phase.name)
        return self

    @model_validator(mode="after")
    def _holds_the_pilots_that_phases_wait_for(self) -> Self:
        for number, phase in enumerate(self.phases):
            if phase.stop_at is not None and not self.pilot_every:
                raise RecipeError(
                    f"sft.phases.{number}.stop_at = {phase.stop_at}: only a pilot can reach it, "
                    "and sft.pilot_every = 0 holds none; set it to some steps, or remove stop_at"
                )
        return self


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
    draws: PositiveInt = 1
    """Draws of problems in a round at most, until enough groups have right attempts and others; 1
    takes one draw as it comes. 10 is usual (DAPO)."""
    updates: PositiveInt = 4
    """Optimiser steps that a round's episodes are split over."""
    save_every: PositiveInt = 10
    """Rounds between checkpoints."""
    keep_last: PositiveInt = 2
    """Checkpoints that stay: the newest."""
    uninformative: Literal["count", "leave_out"] = "count"
    """Groups whose rewards are all equal carry no gradient: do their tokens count in the loss's
    denominators (as in the paper), or are they left out (as in DAPO's filter)?"""
    max_not_measured: float = Field(default=0.1, ge=0, le=1)
    """Share of a round's attempts that may be not measured before the run stops."""
    max_prefix_breaks: float = Field(default=1.0, ge=0, le=1)
    """Share of a round's attempts whose prompt may once not extend what was said before (as with
    `sampling.thinking = "strip"`) before the run stops; 1: no limit."""
    optimizer: RLOptimizerSettings = RLOptimizerSettings()
    """The optimiser."""
    reward: RewardSettings = RewardSettings()
    """What an attempt earns."""
    advantage: AdvantageSettings = AdvantageSettings()
    """How attempts of one group are compared."""
    credit: CreditSettings = CreditSettings()
    """Whether an attempt's turns share one advantage, and what each gets if they do not."""
    selection: SelectionSettings = SelectionSettings()
    """Which of a group's attempts are trained."""
    loss: LossSettings = LossSettings()
    """Which policy loss."""
    off_policy: OffPolicySettings = OffPolicySettings()
    """Which policy is the old one, and how a sampler that differs from it is corrected for."""
    control: ControlSettings = ControlSettings()
    """What of the loss is steered from round to round."""

    @property
    def needs_critic(self) -> bool:
        """Whether a value head learns beside the policy."""
        return self.credit.type == "gae"

    @property
    def needs_reference(self) -> bool:
        """Whether the model as it was at first is asked."""
        steered = self.control.kl is not None
        return steered or self.loss.kl_coefficient > 0 or self.reward.penalties.divergence > 0

    @model_validator(mode="after")
    def _refuse_parts_that_do_not_fit(self) -> Self:
        refuse_other_comparison(self.credit, self.advantage)
        refuse_what_does_not_fit(self.control, self.loss)
        if self.needs_critic and self.uninformative == "leave_out":
            raise RecipeError(
                'rl.uninformative = "leave_out": with rl.credit.type = "gae" groups of equal '
                "rewards carry a gradient too, and teach the critic what to expect; set it to "
                '"count"'
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
        if self.advantage.kind == "passk" and self.advantage.k >= compared:
            raise RecipeError(
                f"rl.advantage.k = {self.advantage.k}: {compared} attempts of a group are "
                "compared, and draws of as many or more are all alike; lower k or raise "
                "rl.group_size"
            )
        return self
