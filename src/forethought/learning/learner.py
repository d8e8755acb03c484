"""The learner: gradients from a crew, optimiser steps, weights published to the sampler.

It does not know an algorithm's name: it is given per-token streams and an objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from forethought.core.errors import RecipeError
from forethought.learning.batch import Batch
from forethought.learning.checkpoint import load_optimizer, read_state, save_optimizer
from forethought.learning.gradient import GradientShare, GradientWork, accumulate
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.result import Tally
from forethought.learning.optimizers import build_optimizers, rate_share
from forethought.learning.precision import chosen_dtype
from forethought.learning.relevance import telling_rows
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.policy.local.crew import Crew
from forethought.policy.local.models import LocalModel
from forethought.policy.local.replica import trained_parameters
from forethought.policy.local.sampler import LocalSampler

MOST_SKIPPED = 10
"""Updates in a row whose gradient may be not finite before training stops."""


class Learner(Protocol):
    """What the training loops ask of an engine that holds weights."""

    async def update(self, batch: Batch, objective: Objective) -> dict[str, float]:
        """One optimiser step on one batch; returns what there is to say about it."""
        ...

    def publish(self) -> None:
        """Let the sampler speak with the new weights from its next turn on."""
        ...

    def write(self, folder: Path) -> None:
        """Write weights and optimiser into an empty folder."""
        ...

    @property
    def state(self) -> Mapping[str, Any]:
        """What `read` needs beside the files."""
        ...

    def read(self, folder: Path) -> None:
        """Go on from what `write` and `state` left in a checkpoint."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class LocalLearner:
    """A learner over a local crew. `total_steps` is what a cosine schedule ends at.

    Gradients whose norm is not finite change nothing and are counted (`update/skipped`).
    `section` is where the recipe holds the optimiser, for messages.
    """

    model: LocalModel
    crew: Crew
    sampler: LocalSampler
    optimizer: OptimizerSettings
    compute: ComputeSettings
    total_steps: int
    temperature: float = 1.0
    budget: float | None = None
    section: str = "optimizer"
    steps_taken: int = 0
    _dtype: torch.dtype | None = field(default=None, init=False)
    _skipped: int = field(default=0, init=False)
    _optimizers: list[torch.optim.Optimizer] = field(
        default_factory=list[torch.optim.Optimizer], init=False
    )

    def __post_init__(self) -> None:
        device = next(self.crew.model.parameters()).device
        self._dtype = chosen_dtype(self.compute.precision, device)
        self._optimizers = build_optimizers(self.crew.model, self.optimizer)

    async def update(self, batch: Batch, objective: Objective) -> dict[str, float]:
        """One optimiser step, its gradient shared out over the crew.

        Raises `RecipeError` when `MOST_SKIPPED` gradients in a row were not finite.
        """
        denominators = batch.denominators(self.budget)
        batch = batch.take(telling_rows(batch, objective))
        works = [
            GradientWork(
                batch=batch.take(rows),
                denominators=denominators,
                objective=objective,
                temperature=self.temperature,
                micro_tokens=self.compute.micro_tokens,
                logit_tokens=self.compute.logit_tokens,
                dtype=self._dtype,
                checkpointing=self.compute.gradient_checkpointing,
            )
            for rows in batch.deal(self.crew.size)
        ]
        shares: list[GradientShare] = await self.crew.run(accumulate, works, _silent)
        self.crew.collect_gradients()
        report = {"loss": sum(share.loss for share in shares)} | _read(shares)
        return report | self._step()

    def publish(self) -> None:
        """Parameters are shared memory: all there is to do is to say that they changed."""
        self.sampler.version = self.steps_taken

    def write(self, folder: Path) -> None:
        """The model as a Hugging Face folder, and each optimiser's moments beside it."""
        self.model.save(folder)
        for number, optimizer in enumerate(self._optimizers):
            save_optimizer(optimizer, folder / f"optimizer_{number}.safetensors")

    @property
    def state(self) -> Mapping[str, Any]:
        """How many optimiser steps were taken."""
        return {"optimizer_steps": self.steps_taken}

    def read(self, folder: Path) -> None:
        """Take weights, moments and the step count from a checkpoint, in place."""
        self.model.load_weights(folder)
        for number, optimizer in enumerate(self._optimizers):
            load_optimizer(optimizer, folder / f"optimizer_{number}.safetensors")
        self.steps_taken = int(read_state(folder)["optimizer_steps"])
        self.publish()

    def _step(self) -> dict[str, float]:
        share = rate_share(self.optimizer, self.steps_taken, self.total_steps)
        norm = torch.nn.utils.clip_grad_norm_(
            trained_parameters(self.crew.model), self.optimizer.clip_norm
        )
        finite = bool(torch.isfinite(norm))
        for optimizer in self._optimizers if finite else []:
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * share
            optimizer.step()
        self.crew.model.zero_grad(set_to_none=True)
        self.steps_taken += 1
        self._refuse_to_stand_still(finite=finite)
        return {
            "grad_norm": float(norm) if finite else 0.0,
            "learning_rate": self.optimizer.rate * share,
            "update/skipped": 0.0 if finite else 1.0,
        }

    def _refuse_to_stand_still(self, *, finite: bool) -> None:
        self._skipped = 0 if finite else self._skipped + 1
        if self._skipped >= MOST_SKIPPED:
            last = self.steps_taken - self._skipped
            raise RecipeError(
                f"{self.section}.rate = {self.optimizer.rate}: {self._skipped} updates in a row "
                f"had a gradient that is not finite, the last finite one was update {last}; lower "
                "the rate and begin in another --run folder (the last checkpoint is untouched)"
            )


def _silent(worker: int, value: object) -> None:
    """Gradient jobs emit nothing."""


def _read(shares: list[GradientShare]) -> dict[str, float]:
    tallies = [share.tally for share in shares if share.tally is not None]
    total: Tally | None = None
    for tally in tallies:
        total = tally if total is None else total + tally
    return {} if total is None else total.read()
