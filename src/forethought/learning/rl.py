"""Reinforcement learning: attempt, compare, improve."""

from dataclasses import replace

from forethought.agents.protocol import Solver
from forethought.learning.appraisal import appraise, components_by_attempt
from forethought.learning.control.controllers import build_controllers
from forethought.learning.improvement import Aim, improve
from forethought.learning.keeping import Keeping, Watcher
from forethought.learning.learner import ComparingLearner
from forethought.learning.practice import (
    Curriculum,
    RLPlan,
    attempt_round,
    idle_rounds,
    refuse_idle,
    refuse_round,
)


async def train_rl(
    plan: RLPlan,
    solver: Solver,
    curriculum: Curriculum,
    learner: ComparingLearner,
    keeping: Keeping,
    watcher: Watcher,
) -> None:
    """Rounds of attempts and updates, from where the last checkpoint left off.

    Ends early where nothing is left to learn. Raises `RecipeError` for rounds that teach nothing
    though something is, or that would teach something else than they seem to.
    """
    settings, journal = plan.settings, keeping.journal
    # A curriculum may have fewer problems than a round is to have.
    attempts = len(curriculum.draw(0)) * settings.group_size
    steering = build_controllers(settings.control, steps=settings.steps, samples=attempts)
    keeping = replace(keeping, companions={"curriculum": curriculum, "control": steering})
    for step in keeping.resume(learner, settings.steps):
        with journal.timed(step, "attempt"):
            attempted = await attempt_round(plan, solver, curriculum, step)
        journal.keep(step, attempted.groups)
        refuse_round(attempted.groups, settings, learner.temperature)
        lessons, report = await appraise(plan, attempted, learner)
        journal.keep_rewards(step, components_by_attempt(lessons, attempted, settings.reward))
        report |= steering.figures
        aim = Aim.of(settings.loss.model_copy(update=steering.settings))
        with journal.timed(step, "learn"):
            report |= await improve(plan, aim, lessons, learner, step)
        curriculum.learn(attempted.groups)
        steering.observe(report)
        journal.log(step, report)
        idle = idle_rounds(journal, step, report, settings.limits.rounds_without_update)
        save = (step + 1) % settings.checkpoints.save_every == 0 or bool(idle.accuracies)
        done = idle.mastered or step == settings.steps - 1
        keeping.close_step(step, learner, save=save, done=done)
        watcher(step, report)
        if done:
            return
        refuse_idle(idle, step, settings)
