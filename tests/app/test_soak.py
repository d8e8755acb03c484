"""Hundreds of rounds with tools, timeouts and failures leave nothing behind.

For longer: `pytest -m slow --rounds 1700 --log-cli-level info tests/app/test_soak.py` is ten
thousand attempts.
"""

import asyncio
import gc
import json
import logging
import multiprocessing
import random
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import pytest

from forethought.agents.groups import Waves
from forethought.agents.tool_agent import ToolAgent
from forethought.core.messages import Assistant
from forethought.core.problem import Problem
from forethought.core.trajectory import Stop
from forethought.core.verdict import Verdict
from forethought.curation.pool import Pool
from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.keeping import Keeping
from forethought.learning.learner import LocalLearner
from forethought.learning.practice import RLPlan
from forethought.learning.rl import train_rl
from forethought.learning.rl_settings import RLSettings
from forethought.policy.parsing import Parsed
from forethought.policy.protocol import SamplingSettings
from forethought.policy.token_policy import TokenPolicy
from forethought.tools.python_tool import PythonTool
from forethought.tools.settings import PythonSettings
from learning.rows import crew_of, learner_of
from scripted import call
from tiny import local_model

WARM = 50
WORDS = 8
"""Tokens that the model knows."""
ANNOUNCED, OWN = [1, 2] * 40, 220
"""The tokens that all openings begin with, and how many follow: together most of the context."""
GROWTH = 50 * 2**20
"""Bytes by which memory may grow; a leak of a round's batch would be more in so many rounds."""


class FirstTurnsCall:
    """Reads every first turn as a program, so that a model that knows nothing uses the tool.

    Every problem has a long opening of its own, after what all of them begin with.
    """

    name = "first turns call"
    end_of_turn = 5

    def opening(self, messages, tools):
        own = random.Random(messages[-1].text)
        return [*ANNOUNCED, *own.choices(range(WORDS), k=OWN)]

    def assistant(self, message):
        raise AssertionError("a policy never writes what it said")

    def hear(self, messages):
        return [3, int(messages[-1].text) % WORDS, 1]

    def read(self, ids, tools, first_id):
        code = json.dumps({"code": f"print({sum(ids)})"})
        calls = () if first_id else (call(code),)
        return Parsed(message=Assistant(text="", calls=calls))


@dataclass
class FailsNowAndThen:
    """A policy of which one rollout in every 20 rounds cannot begin."""

    policy: TokenPolicy

    def open(self, messages, tools, key):
        step, place = key.group.split("/")[1:3]
        if int(step) % 20 == 7 and (place, key.rollout) == ("0", 0):
            raise KeyError("x")
        return self.policy.open(messages, tools, key)


@dataclass
class TimesOut:
    """Says something that varies; of 20 attempts, it gets no answer about one."""

    graded: int = 0

    async def grade(self, problem, trajectory):
        self.graded += 1
        if self.graded % 20 == 0:
            raise TimeoutError("the judge did not answer")
        assert trajectory.stop is not Stop.FAILED
        even = sum(trajectory.segments[0].ids) % 2 == 0
        return Verdict.right() if even else Verdict.wrong()


@dataclass(frozen=True)
class Held:
    """What one process holds on to."""

    memory: int
    files: int
    threads: int


@dataclass(frozen=True)
class Look:
    """What this process and those that it started, by their numbers, hold at one moment.

    Memory of this process is all that it has mapped, wherever the system keeps it: how much of
    that children share changes while they run. That of the others is what each has for itself.
    """

    own: Held
    others: dict[int, Held]
    workers: frozenset[int]
    processes: int
    tasks: int

    @property
    def counts(self):
        return (self.own.files, self.own.threads, self.processes, self.tasks)


def others():
    """What those that this process started hold, as far as the system lets it be seen."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.AccessDenied):
            memory = process.memory_full_info().uss
            yield process.pid, Held(memory, process.num_fds(), process.num_threads())


async def look():
    """What is held once what is winding up has ended: the same several times in a row."""
    gc.collect()  # crews of earlier tests, too, which hold a thread each
    process = psutil.Process()
    seen = []
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        assert len(seen) < 400, f"it does not settle: {seen[-5:]}"
        await asyncio.sleep(0.05)
        children = len(process.children(recursive=True))
        tasks = len(asyncio.all_tasks())
        seen.append((process.num_fds(), process.num_threads(), children, tasks))
    files, threads, children, tasks = seen[-1]
    memory = process.memory_full_info()
    return Look(
        own=Held(memory.rss + memory.swap, files, threads),
        others=dict(others()),
        workers=frozenset(each.pid for each in multiprocessing.active_children()),
        processes=children,
        tasks=tasks,
    )


class Enough(Exception):
    """Raised by the watcher to end a run after a step."""


@dataclass
class Soak:
    """One run over a journal, looked at after its first rounds and after its last."""

    learner: LocalLearner
    keeping: Keeping
    settings: RLSettings
    reports: dict = field(default_factory=dict)

    async def run(self):
        async with PythonTool(PythonSettings(servers=1)) as tool:
            policy = TokenPolicy(
                sampler=self.learner.sampler,
                format=FirstTurnsCall(),
                settings=SamplingSettings(max_tokens=24),
            )
            agent = ToolAgent(policy=FailsNowAndThen(policy), tools=tool, grader=TimesOut())
            return [await self.until(last, agent) for last in (WARM - 1, self.settings.steps - 1)]

    async def until(self, last, agent):
        """What is held after the step `last`, the run going on from where it is."""

        def watch(step, report):
            self.reports[step] = report
            if step == last:
                raise Enough

        new = range(2 * self.settings.steps)
        problems = tuple(Problem(id=str(n), prompt=f"{n} * 7?", answer="!") for n in new)
        pool = Pool(problems=problems, batch=2, seed=0)
        plan = RLPlan(settings=self.settings, seed=0, flow=Waves(6))
        with pytest.raises(Enough):
            await train_rl(plan, agent, pool, self.learner, self.keeping, watch)
        return await look()


def refuse_growth(early, late):
    """Fail where a process held more at the later look.

    A program's process has not been there long: it is counted, and what outlives it is compared.
    """
    assert late.counts == early.counts
    assert late.workers == early.workers <= late.others.keys()
    lasting = early.others.keys() & late.others.keys()
    pairs = [(early.own, late.own), *((early.others[pid], late.others[pid]) for pid in lasting)]
    for before, after in pairs:
        assert (after.files, after.threads) == (before.files, before.threads)
        assert after.memory - before.memory < max(GROWTH, before.memory // 10)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "part"), [(1, 1), (0, 2)])
def test_hundreds_of_rounds_hold_no_more_than_the_first_ones_did(tmp_path, rounds, workers, part):
    rounds = rounds // part
    settings = RLSettings.model_validate(
        {
            "steps": rounds,
            "problems": 2,
            "group_size": 3,
            "checkpoints": {"save_every": WARM},
            "limits": {"not_measured": 0.9, "rounds_without_update": rounds},
            "optimizer": {"updates": 1},
        }
    )
    model = local_model(vocab_size=WORDS, spread=0.1)
    crew = crew_of(model, workers)
    learner = learner_of(model, crew, rate=1e-4)
    try:
        with Run.create_or_open(tmp_path / "run", {}) as run:
            checkpoints = Checkpoints(folder=run.checkpoints / "rl")
            keeping = Keeping(journal=run.stage("rl"), checkpoints=checkpoints)
            soak = Soak(learner, keeping, settings)
            early, late = asyncio.run(soak.run())
    finally:
        crew.close()
    logging.getLogger(__name__).info("after %d rounds %s, after %d %s", WARM, early, rounds, late)
    assert len(early.workers) == workers
    refuse_growth(early, late)
    reports = soak.reports.values()
    assert len(reports) == rounds
    assert sum(report["attempts/not_measured"] > 0 for report in reports) > rounds // 20
    assert sum(report["tool/calls"] for report in reports) > rounds // 2
