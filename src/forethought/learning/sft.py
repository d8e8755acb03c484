"""Supervised training: imitate recorded trajectories, one phase after the other."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from forethought.journal.protocol import StageJournal
from forethought.learning.batch import pad
from forethought.learning.demonstrations import Demonstrations
from forethought.learning.held_out import HELD_OUT_LOSS, RISES, is_among_best, learns_by_heart
from forethought.learning.keeping import Keeping, Watcher
from forethought.learning.learner import Learner
from forethought.learning.losses.sft import sft
from forethought.learning.settings import PhaseSettings

Pilot = Callable[[int], Awaitable[dict[str, float]]]
"""Attempts at a few problems at a given step; its numbers, `pilot/sampled` among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutPlan:
    """When to `measure` what is held out, how many checkpoints to keep for it, whom to tell."""

    measure: Callable[[], Awaitable[dict[str, float]]]
    every: int
    keep_best: int
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTPlan:
    """What one phase does. `pilot_every` 0 holds no pilot; None holds nothing out."""

    phase: PhaseSettings
    seed: int
    save_every: int
    pilot_every: int
    pilot: Pilot
    held_out: HeldOutPlan | None = None


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
        save = (step + 1) % plan.save_every == 0
        measured = plan.held_out if _is_due(plan.held_out, step, done=done) else None
        if measured is not None:
            with journal.timed(step, "held_out"):
                report |= await measured.measure()
            earlier = journal.series(HELD_OUT_LOSS)
            save |= is_among_best(report[HELD_OUT_LOSS], earlier, measured.keep_best)
        journal.log(step, report)
        keeping.close_step(step, learner, save=save, done=done)
        if measured is not None:
            _warn(measured, journal, step)
        watcher(step, report)
        if done:
            return


def _is_due(plan: HeldOutPlan | None, step: int, *, done: bool) -> bool:
    return plan is not None and ((step + 1) % plan.every == 0 or done)


def _warn(plan: HeldOutPlan, journal: StageJournal, step: int) -> None:
    """Say it early when the demonstrations begin to be learnt by heart."""
    held_out = journal.series(HELD_OUT_LOSS)
    if learns_by_heart(held_out, journal.series("loss")):
        losses = ", ".join(f"{loss:.3f}" for _, loss in held_out[-RISES - 1 :])
        plan.say(
            f"step {step}: loss on held-out demonstrations has risen {RISES} times in a row "
            f"({losses}) while training loss fell: they are being learnt by heart. Fewer steps, "
            'more demonstrations or sft.keep = "best" help'
        )
