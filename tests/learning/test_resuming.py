"""A kill between the updates of a round: it is done again, by the weights that began it."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest

from forethought.agents.groups import Waves
from forethought.core.messages import Assistant
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.curation.pool import Pool
from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.keeping import Keeping
from forethought.learning.practice import RLPlan
from forethought.learning.rl import train_rl
from forethought.learning.rl_settings import (
    RLCheckpointSettings,
    RLOptimizerSettings,
    RLSettings,
)

SETTINGS = RLSettings(
    steps=6,
    problems=4,
    group_size=4,
    checkpoints=RLCheckpointSettings(save_every=2),
    optimizer=RLOptimizerSettings(updates=2),
)
PROBLEMS = tuple(Problem(id=f"{n}", prompt="?", answer="!") for n in range(8))


@dataclass
class OneWeight:
    """A learner of a single number, which every bit of a batch changes."""

    dies_at: int | None = None
    weight: float = 1.0
    spoken: float = 1.0
    updates: int = 0
    temperature: float = 1.0

    async def update(self, batch, objective, entropy=None):
        if self.updates == self.dies_at:
            raise KeyboardInterrupt
        kept = (batch.sampled_logprobs_BT * batch.advantages_BT).sum().item()
        self.weight = 0.9 * self.weight + 0.01 * kept + 1e-4 * batch.ids_BT.sum().item()
        self.updates += 1
        return {"weight": self.weight}

    def publish(self):
        self.spoken = self.weight

    @property
    def state(self):
        return {"updates": self.updates}

    def write(self, folder):
        (folder / "weight.json").write_text(json.dumps([self.weight, self.updates]))
        return {}

    def read(self, folder):
        self.weight, self.updates = json.loads((folder / "weight.json").read_text())
        self.publish()


@dataclass
class SaysItsWeight:
    """Speaks one token that follows from the published weight and the seed of its turn."""

    learner: OneWeight
    heard: dict = field(default_factory=dict)

    async def attempt(self, problem, key):
        weight, seed = self.learner.spoken, key.turn_seed(0)
        self.heard.setdefault(int(key.group.split("/")[1]), set()).add(weight)
        token = (seed ^ int(weight * 1e12)) % 7
        said = Tokens(ids=(token,), sampled=(True,), logprobs=(-1.0 - weight * token / 9,))
        turn = Turn(
            message=Assistant(text=""), finish=Finish.END_OF_TURN, tokens=1, temperature=1.0
        )
        side = Trajectory(
            agent="agent",
            opening=(),
            turns=(turn,),
            stop=Stop.ANSWERED,
            segments=(Tokens.join((Tokens.given((1, int(problem.id))), said)),),
        )
        verdict = Verdict.right() if token % 2 else Verdict.wrong()
        return Episode(id=key.episode, problem=problem, trajectories=(side,), verdict=verdict)


def trained(folder, learner):
    """What a process does with a run until it ends or dies; who was heard in which round."""
    solver = SaysItsWeight(learner)
    plan = RLPlan(settings=SETTINGS, seed=0, flow=Waves(64))
    with Run.create_or_open(folder, {}) as run:
        keeping = Keeping(
            journal=run.stage("rl"), checkpoints=Checkpoints(folder=run.checkpoints / "rl")
        )
        pool = Pool(problems=PROBLEMS, batch=4, seed=0)
        asyncio.run(train_rl(plan, solver, pool, learner, keeping, lambda step, report: None))
    return solver.heard


def journal(folder):
    """All that is committed but the seconds."""
    with Run.read(folder) as run:
        told = [name for name in run.metrics("rl") if not name.startswith("seconds/")]
        numbers = {name: run.series("rl", name) for name in told}
        earned = [run.rewards("rl", step) for step in run.steps("rl")]
        return numbers, list(run.groups("rl")), earned


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed: its folder, its learner, and who was heard."""
    folder, learner = tmp_path_factory.mktemp("whole") / "run", OneWeight()
    heard = trained(folder, learner)
    assert learner.updates == SETTINGS.optimizer_steps(
        SETTINGS.problems
    )  # no round without an update
    return folder, learner, heard


@pytest.mark.parametrize("dies_at", range(12))
def test_a_run_killed_before_any_update_of_a_round_ends_as_if_undisturbed(dies_at, whole, tmp_path):
    folder, straight, heard = whole
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", OneWeight(dies_at=dies_at))
    resumed = OneWeight()
    again = trained(tmp_path / "run", resumed)
    # Rounds since the last checkpoint are sampled again, by the weights that sampled them first.
    assert len(again) == SETTINGS.steps - dies_at // 4 * 2
    assert all(again[each] == heard[each] for each in again)
    assert resumed == straight
    assert journal(tmp_path / "run") == journal(folder)


def test_every_round_is_committed_once_and_in_order(whole):
    folder, _, heard = whole
    with Run.read(folder) as run:
        assert run.steps("rl") == list(range(SETTINGS.steps))
    assert [len(weights) for weights in heard.values()] == [1] * SETTINGS.steps
