"""Supervised training: imitate recorded trajectories, one phase after the other."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from forethought.learning.batch import pad
from forethought.learning.demonstrations import Demonstrations
from forethought.learning.learner import Learner
from forethought.learning.losses.sft import sft
from forethought.learning.rl import Keeping, Watcher
from forethought.learning.settings import PhaseSettings

Pilot = Callable[[int], Awaitable[dict[str, float]]]
"""Attempts at a few problems at a given step; its numbers, `pilot/sampled` among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTPlan:
    """What one phase does. `pilot_every` 0 holds no pilot."""

    phase: PhaseSettings
    seed: int
    save_every: int
    pilot_every: int
    pilot: Pilot


async def train_phase(
    plan: SFTPlan, data: Demonstrations, learner: Learner, keeping: Keeping, watcher: Watcher
) -> None:
    """Steps on the phase's mixture, until they are used up or the pilot is good enough."""
    phase, journal = plan.phase, keeping.journal
    for step in keeping.resume(learner, phase.steps):
        rows = data.draw(step, phase.batch, phase.tool_free, plan.seed)
        with journal.timed(step, "learn"):
            report = await learner.update(pad(rows, [0.0] * len(rows)), sft)
        learner.publish()
        done = step == phase.steps - 1
        if plan.pilot_every and ((step + 1) % plan.pilot_every == 0 or done):
            with journal.timed(step, "pilot"):
                report |= await plan.pilot(step)
            done |= phase.stop_at is not None and report["pilot/sampled"] >= phase.stop_at
        journal.log(step, report)
        save = (step + 1) % plan.save_every == 0
        keeping.close_step(step, learner, save=save, done=done)
        watcher(step, report)
        if done:
            return
