"""Reinforcement learning: attempt, compare, improve."""

from dataclasses import replace

from forethought.agents.protocol import Solver
from forethought.learning.appraisal import appraise
from forethought.learning.control.controllers import build_controllers
from forethought.learning.improvement import Aim, improve
from forethought.learning.keeping import Keeping, Watcher
from forethought.learning.learner import ComparingLearner
from forethought.learning.practice import Curriculum, RLPlan, attempt_round, refuse_round


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
    steering = build_controllers(
        settings.control, steps=settings.steps, samples=settings.problems * settings.group_size
    )
    keeping = replace(keeping, companions={"curriculum": curriculum, "control": steering})
    for step in keeping.resume(learner, settings.steps):
        with journal.timed(step, "attempt"):
            attempted = await attempt_round(plan, solver, curriculum, step)
        journal.keep(step, attempted.groups)
        refuse_round(attempted.groups, settings, learner.temperature)
        lessons, report = await appraise(plan, attempted, learner)
        report |= steering.figures
        aim = Aim.of(settings.loss.model_copy(update=steering.settings))
        with journal.timed(step, "learn"):
            report |= await improve(plan, aim, lessons, learner, step)
        curriculum.learn(attempted.groups)
        steering.observe(report)
        journal.log(step, report)
        save = (step + 1) % settings.checkpoints.save_every == 0
        keeping.close_step(step, learner, save=save, done=step == settings.steps - 1)
        watcher(step, report)
