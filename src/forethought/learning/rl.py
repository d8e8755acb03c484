"""Reinforcement learning: attempt, compare, improve."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from forethought.agents.groups import attempt_groups
from forethought.agents.protocol import Solver
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Episode, Group
from forethought.journal.protocol import StageJournal
from forethought.learning.advantage import AdvantageSettings
from forethought.learning.checkpoint import Checkpoints, read_state
from forethought.learning.learner import Learner
from forethought.learning.lessons import Lesson, assemble, score
from forethought.learning.losses.catalogue import Objective
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.rewards import RewardSettings
from forethought.learning.settings import RLSettings


class Curriculum(Protocol):
    """What to practise next."""

    def draw(self, step: int) -> Sequence[Problem]:
        """The problems of one round; a pure function of what it has learnt and the step."""
        ...

    def learn(self, groups: Sequence[Group]) -> None:
        """Take in how a round went."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RLPlan:
    """What one run of reinforcement learning does, apart from who does it."""

    settings: RLSettings
    reward: RewardSettings
    advantage: AdvantageSettings
    objective: Objective
    seed: int
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told how far the loop is: of each episode as it ends, and of each step's numbers."""

    episode: Callable[[Episode], None]
    step: Callable[[int, dict[str, float]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Where the loop keeps things: its journal and its checkpoints."""

    journal: StageJournal
    checkpoints: Checkpoints

    def resume(self, learner: Learner, steps: int) -> range:
        """Put the learner back to the newest checkpoint that the journal knows; what is left."""
        found = self.checkpoints.newest(self.journal.next_step - 1)
        if found is None:
            self.journal.rewind(0)
            return range(steps)
        step, folder = found
        learner.read(folder)
        self.journal.rewind(step + 1)
        return range(0) if read_state(folder)["done"] else range(step + 1, steps)

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
    learner: Learner,
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
                at_once=plan.at_once,
                progress=watcher.episode,
            )
        journal.keep(step, groups)
        refuse_unmeasured(groups, settings.max_not_measured)
        lessons = score(groups, plan.reward, plan.advantage)
        report = summarise(groups) | summarise_lessons(lessons)
        with journal.timed(step, "learn"):
            report |= await learn(plan, lessons, learner, step)
        curriculum.learn(groups)
        journal.log(step, report)
        save = (step + 1) % settings.save_every == 0
        keeping.close_step(step, learner, save=save, done=step == settings.steps - 1)
        watcher.step(step, report)


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


def refuse_unmeasured(groups: Sequence[Group], share: float) -> None:
    """Stop the run when more than `share` of the attempts could not be measured."""
    episodes = [episode for group in groups for episode in group.episodes]
    lost = [episode for episode in episodes if not episode.measured]
    if len(lost) > share * len(episodes):
        why, count = Counter(episode.verdict.why for episode in lost).most_common(1)[0]
        raise RecipeError(
            f"{len(lost)} of {len(episodes)} attempts were not measured, more than rl."
            f"max_not_measured = {share}; {count} of them: {why}. Mend that and run the same "
            "command again: it resumes"
        )


def _mean(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """Each number's mean over a round's updates, and how many there were."""
    names = reports[0] if reports else ()
    means = {name: sum(report[name] for report in reports) / len(reports) for name in names}
    return means | {"updates": float(len(reports))}
