"""Reinforcement learning: attempt, compare, improve."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forethought.agents.groups import Flow, attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Group
from forethought.journal.protocol import StageJournal
from forethought.learning.agreement import refuse_other_temperature, refuse_prefix_breaks
from forethought.learning.checkpoint import Checkpoints, intact, read_state
from forethought.learning.learner import Learner
from forethought.learning.lessons import Lesson, assemble, score
from forethought.learning.losses.catalogue import Objective
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.settings import RLSettings


class Curriculum(Protocol):
    """What to practise next."""

    def draw(self, step: int) -> Sequence[Problem]:
        """The problems of one round; a pure function of what it has learnt and the step."""
        ...

    def learn(self, groups: Sequence[Group]) -> None:
        """Take in how a round went."""
        ...


class ComparingLearner(Learner, Protocol):
    """A learner that compares log-probabilities with those of the sampler."""

    @property
    def temperature(self) -> float:
        """The temperature at which it computes them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RLPlan:
    """What one run of reinforcement learning does, apart from who does it."""

    settings: RLSettings
    objective: Objective
    seed: int
    flow: Flow


Watcher = Callable[[int, dict[str, float]], None]
"""Who is told how far the loop is: a step that has been committed, and its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Where the loop keeps things: its journal and its checkpoints."""

    journal: StageJournal
    checkpoints: Checkpoints

    def resume(self, learner: Learner, steps: int) -> range:
        """Put the learner back to the newest checkpoint that the journal knows; what is left.

        Later checkpoints go: the steps that led to them will be taken again, perhaps otherwise.
        """
        found = self.checkpoints.newest(self.journal.next_step - 1)
        if found is None:
            self.checkpoints.forget_after(-1)
            self.journal.rewind(0)
            return range(steps)
        step, folder = found
        self.checkpoints.forget_after(step)
        with intact(folder):
            learner.read(folder)
            done = read_state(folder)["done"]
        self.journal.rewind(step + 1)
        return range(0) if done else range(step + 1, steps)

    def close_step(self, step: int, learner: Learner, *, save: bool, done: bool) -> None:
        """Save a checkpoint if it is time or the end, then let the step become visible."""
        if save or done:
            with self.journal.timed(step, "save"):
                state = {**learner.state, "done": done}
                self.checkpoints.save(str(step), learner.write, state)
        self.journal.commit(step)
        self.checkpoints.forget_old()


async def train_rl(
    plan: RLPlan,
    solver: Solver,
    curriculum: Curriculum,
    learner: ComparingLearner,
    keeping: Keeping,
    watcher: Watcher,
) -> None:
    """Rounds of attempts and updates, from where the last checkpoint left off."""
    settings, journal = plan.settings, keeping.journal
    for step in keeping.resume(learner, settings.steps):
        with journal.timed(step, "attempt"):
            groups = await attempt_groups(
                solver,
                curriculum.draw(step),
                size=settings.group_size,
                seed=plan.seed,
                stage=f"rl/{step}",
                flow=plan.flow,
            )
        journal.keep(step, groups)
        refuse_unmeasured(groups, settings.max_not_measured, "rl.max_not_measured")
        refuse_prefix_breaks(groups, settings.max_prefix_breaks)
        refuse_other_temperature(groups, learner.temperature)
        lessons = score(groups, settings.reward, settings.advantage)
        report = summarise(groups) | summarise_lessons(lessons)
        with journal.timed(step, "learn"):
            report |= await learn(plan, lessons, learner, step)
        curriculum.learn(groups)
        journal.log(step, report)
        save = (step + 1) % settings.save_every == 0
        keeping.close_step(step, learner, save=save, done=step == settings.steps - 1)
        watcher(step, report)


async def learn(
    plan: RLPlan, lessons: Sequence[Lesson], learner: Learner, step: int
) -> dict[str, float]:
    """The updates of one round: its groups in mini-batches, each used once."""
    useful = [
        lesson
        for lesson in lessons
        if lesson.episodes and (lesson.is_informative or plan.settings.uninformative == "count")
    ]
    random.Random(derive_seed(plan.seed, "mini-batches", step)).shuffle(useful)
    reports: list[dict[str, float]] = []
    for number in range(plan.settings.updates):
        part = useful[number :: plan.settings.updates]
        if any(lesson.is_informative for lesson in part):
            reports.append(await learner.update(assemble(part), plan.objective))
    learner.publish()
    return _mean(reports)


def _mean(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Each number's mean over a round's updates, and how many there were."""
    names = reports[0] if reports else ()
    means = {name: sum(report[name] for report in reports) / len(reports) for name in names}
    return means | {"updates": float(len(reports))}
