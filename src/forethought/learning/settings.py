"""Settings of the learner, of where it computes, and of imitation; `rl_settings` has the rest."""

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from forethought.agents.groups import Flow, Waves, Window
from forethought.core.errors import RecipeError
from forethought.core.settings import Magnitude, Settings

Precision = Literal["float32", "bfloat16", "float16", "auto"]


class OptimizerSettings(Settings):
    """How a gradient becomes a step."""

    type: Literal["adamw", "muon", "adamw_8bit", "paged_adamw_8bit"] = "adamw"
    """`muon` takes the hidden matrices; everything else stays with AdamW. `adamw_8bit` keeps the
    moments of large matrices, all but the embedding, in 8 bits a number; paged, they may move from
    a GPU to the host's memory. Both need bitsandbytes (`pip install 'forethought[8bit]'`)."""
    rate: float = Field(default=1e-6, gt=0, le=10)
    """AdamW's learning rate."""
    muon_rate: float = Field(default=0.02, gt=0, le=10)
    """Muon's learning rate (only with `type = "muon"`)."""
    warmup: NonNegativeInt = 0
    """Optimiser steps over which the rates rise from 0."""
    schedule: Literal["constant", "cosine"] = "constant"
    """What the rates do after warm-up, over the stage's steps."""
    floor: float = Field(default=0.1, ge=0, le=1)
    """Where `cosine` ends, as a share of the rate."""
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's first moment decay."""
    beta_2: float = Field(default=0.95, ge=0, lt=1)
    """AdamW's second moment decay."""
    weight_decay: float = Field(default=0.01, ge=0, le=100)
    """AdamW's and Muon's decoupled weight decay."""
    clip_norm: Magnitude = 1.0
    """The gradient's largest norm."""


class SFTOptimizerSettings(OptimizerSettings):
    """The same with the defaults of imitation."""

    rate: float = Field(default=5e-5, gt=0, le=10)
    """AdamW's learning rate."""
    warmup: NonNegativeInt = 10
    """Optimiser steps over which the rates rise from 0."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """What the rates do after warm-up, over the stage's steps."""


class ComputeSettings(Settings):
    """Where and in what portions to compute."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a GPU when there is one."""
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"
    """One-thread worker processes; 0 computes in this process. `auto` measures both
    here, one a core and none, when a run begins, takes what serves the model's size better, and
    keeps to it (`calibration.json`)."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of this process; 0 is one beside workers, and otherwise one a core."""
    micro_tokens: PositiveInt = 2048
    """Tokens in one forward and backward pass."""
    logit_tokens: PositiveInt = 2048
    """Trained tokens whose logits exist at once; those of more are computed twice."""
    precision: Precision = "auto"
    """Number type of matrix multiplications, and of what passes between them. Trained weights,
    norms, log-probabilities and losses stay float32. `auto`: bfloat16 on a GPU that has it.
    float16, which older GPUs have too, takes a loss scale that finds itself."""
    gradient_checkpointing: bool = False
    """Keep one hidden state a layer for the way back, and compute the rest of it again."""
    deterministic: bool = True
    """Turns begin in rounds, whatever their tools took: equal runs on one machine are equal to the
    bit, if they have as many `workers` (`auto` may find another number in another run). Each round
    waits for the tools of the turns that ended before it, and a wave of attempts for its last one:
    with slow tools `false` is faster."""
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
