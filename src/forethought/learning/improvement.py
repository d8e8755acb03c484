"""A round's updates: its lessons in mini-batches, each used once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from forethought.core.randomness import derive_seed
from forethought.learning.batch import Batch
from forethought.learning.correction.correct import correct
from forethought.learning.critic import criticise
from forethought.learning.divergence import token_penalties
from forethought.learning.gradient import EntropyTerm
from forethought.learning.learner import ComparingLearner
from forethought.learning.lessons import Lesson, assemble
from forethought.learning.losses.catalogue import Objective, objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.practice import RLPlan
from forethought.learning.relevance import telling_rows

_NO_FIGURES: dict[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What an update minimises."""

    objective: Objective
    entropy: EntropyTerm | None

    @classmethod
    def of(cls, settings: LossSettings) -> "Aim":
        """A recipe's loss, and its entropy term where it has one."""
        term = EntropyTerm(
            coefficient=settings.entropy_coefficient, aggregation=settings.chosen_aggregation
        )
        return cls(
            objective=objective(settings), entropy=term if settings.entropy_coefficient else None
        )


async def improve(
    plan: RLPlan, aim: Aim, lessons: Sequence[Lesson], learner: ComparingLearner, step: int
) -> dict[str, float]:
    """Every mini-batch that can teach something is one update; then the sampler is told."""
    batches = [assemble(part) for part in _mini_batches(plan, lessons, step)]
    batches, foreseen = await _criticised(plan, batches, learner)
    prepared = [(batch, _NO_FIGURES) for batch in batches]
    if plan.settings.off_policy.old == "recomputed":
        # All of them before the first update: they share one old policy.
        prepared = [await _recomputed(plan, aim, batch, learner) for batch in batches]
    reports: list[dict[str, float]] = []
    for batch, figures in prepared:
        if _teaches(batch):
            reports.append(figures | await learner.update(batch, aim.objective, aim.entropy))
    learner.publish()
    return _mean(reports) | foreseen


def _mini_batches(plan: RLPlan, lessons: Sequence[Lesson], step: int) -> list[list[Lesson]]:
    updates = plan.settings.optimizer.updates
    counted = plan.settings.selection.uninformative == "count"
    useful = [lesson for lesson in lessons if lesson.trained and (lesson.is_informative or counted)]
    random.Random(derive_seed(plan.seed, "mini-batches", step)).shuffle(useful)
    parts = [useful[number::updates] for number in range(min(updates, len(useful)))]
    return [part for part in parts if any(lesson.is_informative for lesson in part)]


def _teaches(batch: Batch) -> bool:
    """Whether any token still counts: rejection, or weights, may have left none."""
    weighted_BT = (
        batch.advantages_BT
        if batch.weights_BT is None
        else (batch.advantages_BT * batch.weights_BT)
    )
    return bool(weighted_BT.any())


async def _criticised(
    plan: RLPlan, batches: list[Batch], learner: ComparingLearner
) -> tuple[list[Batch], dict[str, float]]:
    """A round's batches with a critic's advantages, where the recipe has one."""
    credit, costs = plan.settings.credit, plan.settings.reward.penalties.divergence
    if not plan.settings.needs_critic or not batches:
        return batches, _NO_FIGURES
    values = [
        await learner.forecast(batch, range(len(batch.ids_BT)), "critic") for batch in batches
    ]
    penalties = [await token_penalties(batch, learner, costs) for batch in batches if costs]
    found = criticise(batches, values, credit.decay, credit.critic.trace, penalties)
    return list(found.batches), {"critic/explained": found.explained}


async def _recomputed(
    plan: RLPlan, aim: Aim, batch: Batch, learner: ComparingLearner
) -> tuple[Batch, dict[str, float]]:
    """A batch with the learner's own old log-probabilities and the recipe's rollout correction.

    Rows that teach nothing are not read; what the sampler says of them stands.
    """
    rows = telling_rows(batch, aim.objective)
    found_BT = await learner.forecast(batch, rows)
    old_BT = batch.sampled_logprobs_BT.to(found_BT.dtype).clone()
    old_BT[rows] = found_BT[rows]
    found = correct(
        old_BT[rows],
        batch.sampled_logprobs_BT[rows],
        batch.advantages_BT[rows],
        batch.mask_BT[rows],
        plan.settings.off_policy.correction,
    )
    mask_BT, weights_BT = batch.mask_BT.clone(), batch.mask_BT.to(torch.float32)
    mask_BT[rows], weights_BT[rows] = found.mask_BT, found.weights_BT.to(torch.float32)
    figures = {f"mismatch/{name}": value for name, value in found.figures.items()}
    return replace(batch, old_logprobs_BT=old_BT).masked(mask_BT, weights_BT), figures


def _mean(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Each number's mean over the updates that have it (a maximum's maximum), and their count."""
    values: dict[str, list[float]] = {}
    for report in reports:
        for name, value in report.items():
            values.setdefault(name, []).append(value)
    means = {
        name: max(found) if name.endswith("_max") else sum(found) / len(found)
        for name, found in values.items()
    }
    return means | {"updates": float(len(reports))}
