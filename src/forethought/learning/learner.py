"""The learner: gradients from a crew, optimiser steps, weights published to the sampler.

It does not know an algorithm's name: it is given per-token streams and an objective.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from forethought.learning.batch import Batch
from forethought.learning.change import Sample
from forethought.learning.checkpoint import Contents, load_optimizer, read_state, save_optimizer
from forethought.learning.credit.settings import CriticSettings
from forethought.learning.finite import FiniteGuard
from forethought.learning.forecast import ForecastWork, Source, forecast
from forethought.learning.gradient import (
    NO_SHARE,
    CriticTerm,
    EntropyTerm,
    GradientShare,
    GradientWork,
    accumulate,
    unheard,
)
from forethought.learning.logprobs import Scale
from forethought.learning.loss_scale import LossScale
from forethought.learning.losses.catalogue import Objective
from forethought.learning.optimizers import build_optimizers, rate_share
from forethought.learning.precision import chosen_dtype
from forethought.learning.relevance import telling_rows
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.policy.local.crew import Crew
from forethought.policy.local.models import LocalModel
from forethought.policy.local.replica import trained_parameters
from forethought.policy.local.sampler import LocalSampler
from forethought.policy.local.value_head import (
    load_value_head,
    save_value_head,
    value_head_of,
)


class Learner(Protocol):
    """What the training loops ask of an engine that holds weights."""

    async def update(
        self, batch: Batch, objective: Objective, entropy: EntropyTerm | None = None
    ) -> dict[str, float]:
        """One optimiser step on one batch; returns what there is to say about it."""
        ...

    def publish(self) -> None:
        """Let the sampler speak with the new weights from its next turn on."""
        ...

    def write(self, folder: Path) -> Contents:
        """Write weights and optimiser into an empty folder; return what its files are to hold."""
        ...

    @property
    def state(self) -> Mapping[str, Any]:
        """What `read` needs beside the files."""
        ...

    def read(self, folder: Path) -> None:
        """Go on from what `write` and `state` left in a checkpoint."""
        ...


class ComparingLearner(Learner, Protocol):
    """A learner that compares log-probabilities with those of the sampler."""

    @property
    def temperature(self) -> float:
        """The temperature at which it computes them."""
        ...

    async def forecast(self, batch: Batch, rows: Sequence[int], of: Source = "policy") -> Tensor:
        """One number a trained token [B, T] of these rows, by the weights as they are."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class LocalLearner:
    """A learner over a local crew. `total_steps` is what a cosine schedule ends at.

    A loss or a gradient that is not finite changes nothing; it is counted (`update/skipped`), and a
    warning (`SkippedUpdate`) names the attempts whose numbers were not finite.
    `section` is where the recipe holds the optimiser, for messages. `critic` is how its value head
    learns, where the model has one.
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
    critic: CriticSettings | None = None
    steps_taken: int = 0
    _dtype: torch.dtype | None = field(default=None, init=False)
    _scale: LossScale = field(init=False)
    _guard: FiniteGuard = field(init=False)
    _optimizers: list[torch.optim.Optimizer] = field(
        default_factory=list[torch.optim.Optimizer], init=False
    )

    def __post_init__(self) -> None:
        device = next(self.crew.model.parameters()).device
        self._dtype = chosen_dtype(self.compute.precision, device)
        self._scale = LossScale.of(self._dtype)
        self._guard = FiniteGuard(
            section=self.section, optimizer=self.optimizer, float16=self._scale.moves
        )
        head_rate = None if self.critic is None else self.critic.rate
        self._optimizers = build_optimizers(
            self.crew.model, self.optimizer, head_rate, self.section
        )

    async def update(
        self, batch: Batch, objective: Objective, entropy: EntropyTerm | None = None
    ) -> dict[str, float]:
        """One optimiser step, its gradient shared out over the crew.

        Raises `RecipeError` when `MOST_SKIPPED` updates in a row were not finite.
        """
        denominators = batch.denominators(self.budget)
        critic = None
        if self.critic is not None and batch.returns_BT is not None:
            critic = CriticTerm(coefficient=self.critic.coefficient, clip=self.critic.clip)
        if entropy is None and critic is None:  # which every row has
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
                entropy=entropy,
                critic=critic,
            )
            for rows in batch.deal(self.crew.size)
        ]
        whole = await self._gradient(works)
        report = self._step(whole)
        if report["update/skipped"]:
            return report  # what it came to is not known
        figures = {} if whole.tally is None else whole.tally.read()
        return {"loss": whole.loss} | figures | report

    async def _gradient(self, works: Sequence[GradientWork]) -> GradientShare:
        """Leave the gradient of these rows with the model.

        Where float16 could not hold it, it is made again with a smaller loss scale.
        """
        while True:
            scaled = [replace(work, loss_scale=self._scale.factor) for work in works]
            shares: list[GradientShare] = await self.crew.run(accumulate, scaled, unheard)
            self.crew.collect_gradients()
            whole = reduce(add, shares, NO_SHARE)
            if not self._scale.moves or not math.isfinite(whole.loss):
                return whole
            if self._unscaled() or not self._scale.lower():
                return whole

    def _unscaled(self) -> bool:
        """Divide the gradient by the loss scale; whether it is finite."""
        held = [each.grad for each in trained_parameters(self.crew.model) if each.grad is not None]
        for gradient in held:
            gradient.div_(self._scale.factor)
        return all(bool(torch.isfinite(gradient).all()) for gradient in held)

    async def forecast(self, batch: Batch, rows: Sequence[int], of: Source = "policy") -> Tensor:
        """One number a trained token [B, T] of these rows, by the weights as they are.

        Log-probabilities of the policy or of the reference, or the critic's values. The other rows
        hold 0. An update of just these rows reads them in the same portions, so that its ratios
        are 1 to the bit.
        """
        told = batch.take(rows)
        dealt = told.deal(self.crew.size)
        scale = Scale(temperature=self.temperature, logit_tokens=self.compute.logit_tokens)
        works = [
            ForecastWork(
                batch=told.take(share),
                scale=scale,
                micro_tokens=self.compute.micro_tokens,
                dtype=self._dtype,
                of=of,
            )
            for share in dealt
        ]
        found: list[Tensor] = await self.crew.run(forecast, works, unheard)
        whole_BT = torch.zeros(batch.ids_BT.shape, dtype=found[0].dtype)
        for share, part_BT in zip(dealt, found, strict=True):
            places = [rows[row] for row in share]
            whole_BT[places, : part_BT.shape[1]] = part_BT
        return whole_BT

    def publish(self) -> None:
        """Parameters are shared memory: all there is to do is to say that they changed."""
        self.sampler.version = self.steps_taken

    def write(self, folder: Path) -> Contents:
        """The model as a Hugging Face folder, and each optimiser's moments beside it."""
        contents = {**self.model.save(folder), **save_value_head(self.model.network, folder)}
        for number, optimizer in enumerate(self._optimizers):
            contents |= save_optimizer(optimizer, folder / f"optimizer_{number}.safetensors")
        return contents

    @property
    def state(self) -> Mapping[str, Any]:
        """How many optimiser steps were taken, how many of the last were not made, and by what the
        loss is multiplied."""
        taken = {"optimizer_steps": self.steps_taken, "skipped": self._guard.skipped}
        return taken | {"loss_scale": self._scale.state}

    def read(self, folder: Path) -> None:
        """Take weights, moments and the step count from a checkpoint, in place."""
        self.model.load_weights(folder)
        load_value_head(self.model.network, folder)
        for number, optimizer in enumerate(self._optimizers):
            load_optimizer(optimizer, folder / f"optimizer_{number}.safetensors")
        state = read_state(folder)
        self.steps_taken = int(state["optimizer_steps"])
        self._guard.skipped = int(state.get("skipped", 0))
        self._scale.read(state.get("loss_scale", {}))
        self.publish()

    def _step(self, whole: GradientShare) -> dict[str, float]:
        share = rate_share(self.optimizer, self.steps_taken, self.total_steps)
        trained = trained_parameters(self.crew.model)
        norm, finite = self._clip()
        # Where a number is NaN, a clip may pass no gradient: then the loss alone shows it.
        finite = finite and math.isfinite(whole.loss)
        before = Sample.of(trained)
        for optimizer in self._optimizers if finite else []:
            for group in optimizer.param_groups:
                group["lr"] = group["full_rate"] * share
            optimizer.step()
        self.crew.model.zero_grad(set_to_none=True)
        self.steps_taken += 1
        if not finite:
            self._guard.skip(self.steps_taken, whole.whose)
        told = {
            "learning_rate": self.optimizer.rate * share,
            "update/skipped": 0.0 if finite else 1.0,
        }
        if self._scale.moves:
            told["update/loss_scale"] = self._scale.factor
        if not finite:
            return told
        self._scale.fitted()
        ratio = Sample.of(trained).change_since(before)
        self._guard.made(self.steps_taken, ratio)
        return told | {"grad_norm": float(norm), "update/ratio": ratio}

    def _clip(self) -> tuple[Tensor, bool]:
        """The norm of the policy's gradient before it is clipped, and whether all is finite.

        A critic's head is clipped apart: its gradient grows with the width of what it reads.
        """
        head = value_head_of(self.crew.model)
        heads = [] if head is None else list(head.parameters())
        apart = {id(each) for each in heads}
        trained = trained_parameters(self.crew.model)
        policy = [each for each in trained if id(each) not in apart]
        norms = [
            torch.nn.utils.clip_grad_norm_(each, self.optimizer.clip_norm)
            for each in (policy, heads)
            if each
        ]
        return norms[0], all(bool(torch.isfinite(norm)) for norm in norms)
