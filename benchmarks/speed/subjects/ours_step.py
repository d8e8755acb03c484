"""Forethought's whole step: attempts with the real tool, rewards, gradient, update, journal."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.speed.subjects.lengths import lengths
from benchmarks.speed.subjects.ours import (
    TOOL,
    Counted,
    calls_of,
    engine_of,
    limits_of,
    problems_of,
    sampling_of,
    tokens_of,
)

from forethought.app.engine import Engine
from forethought.core.problem import Problem
from forethought.core.trajectory import Group
from forethought.journal.run import Run
from forethought.journal.stage import Stage
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.keeping import Keeping
from forethought.learning.practice import RLPlan
from forethought.learning.rewards import RewardSettings
from forethought.learning.rl import train_rl
from forethought.learning.rl_settings import (
    RLCheckpointSettings,
    RLOptimizerSettings,
    RLSettings,
)
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool

ENDLESS = 1_000_000


class EnoughError(Exception):
    """As many steps as the task asks for were taken: no checkpoint is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """A curriculum that gives the problems in their order, over and over."""

    problems: Sequence[Problem]
    count: int

    def draw(self, step: int) -> list[Problem]:
        """The next `count` problems."""
        first = step * self.count
        return [self.problems[(first + n) % len(self.problems)] for n in range(self.count)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Nothing: the order is fixed."""

    @property
    def state(self) -> Mapping[str, Any]:
        """Nothing: the order is fixed."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing: the order is fixed."""


@dataclass(slots=True, kw_only=True)
class Clock:
    """Takes the time of every committed step, and stops after the last one asked for."""

    steps: int
    ends: list[float] = field(default_factory=list[float])
    reports: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def __call__(self, step: int, report: dict[str, float]) -> None:
        """A step has been committed."""
        self.ends.append(time.perf_counter())
        self.reports.append(report)
        if len(self.ends) == self.steps:
            raise EnoughError


async def train(task: Task, engine: Engine, stage: Stage) -> tuple[Counted, Clock]:
    """Take the task's steps: those to get warm, and those that are timed."""
    settings = RLSettings(
        steps=ENDLESS,
        problems=task["prompts"],
        group_size=task["group"],
        checkpoints=RLCheckpointSettings(save_every=ENDLESS),
        optimizer=RLOptimizerSettings(updates=1),
        # Rewards that depend on length differ within nearly every group: nothing to learn from
        # would mean no gradient, and less work than the other side does.
        reward=RewardSettings(overlong_buffer=task["tokens"], overlong_limit=task["tokens"]),
    )
    plan = RLPlan(
        settings=settings,
        seed=task["seed"],
        flow=engine.compute.flow,
    )
    folder = Path(task["folder"]) / "checkpoints"
    keeping = Keeping(journal=stage, checkpoints=Checkpoints(folder=folder))
    curriculum = InOrder(problems=problems_of(task), count=task["prompts"])
    clock = Clock(steps=task["warm"] + task["steps"])
    async with PythonTool(TOOL) as tool:
        solver = Counted(
            solver=engine.agent(tool, BoxedGrader(), limits_of(task), sampling_of(task))
        )
        learner = engine.learner(settings.optimizer, clock.steps, budget=task["tokens"])
        try:
            await train_rl(plan, solver, curriculum, learner, keeping, clock)
        except EnoughError:
            return solver, clock
    raise AssertionError("the loop ended before the clock stopped it")


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Seconds a step over the timed steps, and what was sampled in them."""
    warm, steps = task["warm"], task["steps"]
    with Run.create_or_open(Path(task["folder"]) / "run", {}) as run, engine_of(task) as engine:
        solver, clock = asyncio.run(train(task, engine, run.stage("rl")))
        parts = {
            name: fmean([value for _, value in run.series("rl", f"seconds/{name}")][warm:])
            for name in ("attempt", "learn")
        }
        workers = engine.crew.size
    timed = solver.episodes[warm * task["prompts"] * task["group"] :]
    tokens = [tokens_of(episode) for episode in timed]
    figures = {
        "seconds": (clock.ends[-1] - clock.ends[warm - 1]) / steps,
        "tokens": sum(tokens) / steps,
        "attempt_seconds": parts["attempt"],
        "learn_seconds": parts["learn"],
        "updates": fmean(report["updates"] for report in clock.reports[warm:]),
        **lengths(tokens, task["tokens"], [calls_of(episode) for episode in timed]),
    }
    return {task["case"]: figures}, {"workers": workers, "all_tokens": tokens}


if __name__ == "__main__":
    answer(measure)
