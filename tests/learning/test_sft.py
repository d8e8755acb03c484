"""A phase of imitation: the loss falls, the pilot ends it, and a finished phase stays finished."""

import asyncio
from dataclasses import dataclass, field

import pytest

from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.demonstrations import Demonstrations
from forethought.learning.rl import Keeping
from forethought.learning.settings import PhaseSettings, SFTOptimizerSettings
from forethought.learning.sft import SFTPlan, train_phase
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model, same_weights, weights

DATA = Demonstrations(
    with_calls=tuple(random_rows(12, seed=1, longest=12)),
    tool_free=tuple(random_rows(4, seed=2, longest=12)),
    too_long=0,
)


@dataclass
class Phase:
    """One process's part of a phase, with a pilot whose accuracies are written down."""

    folder: object
    pilots: dict = field(default_factory=dict)
    pilot_every: int = 0
    steps: int = 8
    save_every: int = 3
    stop_at: float | None = None
    stop_after: int | None = None
    optimizer: str = "adamw"
    workers: int = 0

    def __post_init__(self):
        self.model = local_model(spread=0.1)
        self.reports = {}
        self.piloted = []

    async def pilot(self, step):
        self.piloted.append(step)
        return {"pilot/sampled": self.pilots.get(step, 0.0)}

    def watch(self, step, report):
        self.reports[step] = report
        if step == self.stop_after:
            raise KeyboardInterrupt

    def run(self):
        optimizer = SFTOptimizerSettings(
            type=self.optimizer, rate=2e-2, warmup=2, schedule="cosine"
        )
        phase = PhaseSettings(
            name="first",
            steps=self.steps,
            batch=8,
            tool_free=0.25,
            stop_at=self.stop_at,
            optimizer=optimizer,
        )
        plan = SFTPlan(
            phase=phase,
            seed=0,
            save_every=self.save_every,
            pilot_every=self.pilot_every,
            pilot=self.pilot,
        )
        crew = crew_of(self.model, self.workers)
        learner = learner_of(self.model, crew, steps=self.steps, **optimizer.model_dump())
        try:
            with Run.create_or_open(self.folder / "run", {}) as run:
                keeping = Keeping(
                    journal=run.stage("sft"), checkpoints=Checkpoints(folder=run.checkpoints / "s")
                )
                asyncio.run(train_phase(plan, DATA, learner, keeping, self.watch))
        finally:
            crew.close()
        return self

    def kept(self):
        """The steps of the checkpoints on disk, and the losses in the journal."""
        with Run.create_or_open(self.folder / "run", {}) as run:
            steps = list(Checkpoints(folder=run.checkpoints / "s").numbered())
            return steps, run.series("sft", "loss")


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loss_falls(workers, tmp_path):
    phase = Phase(tmp_path, steps=15, workers=workers).run()
    losses = [report["loss"] for report in phase.reports.values()]
    assert losses[-1] < 0.7 * losses[0]
    assert [report["nll"] for report in phase.reports.values()] == pytest.approx(losses, rel=1e-5)


def test_the_pilot_that_reaches_its_target_ends_the_phase(tmp_path):
    phase = Phase(tmp_path, {1: 0.4, 3: 0.5, 5: 0.9}, pilot_every=2, stop_at=0.5).run()
    assert phase.piloted == [1, 3]
    assert list(phase.reports) == [0, 1, 2, 3]
    assert phase.kept()[0] == [2, 3]


def test_a_phase_without_a_target_uses_all_its_steps_and_ends_with_a_pilot(tmp_path):
    phase = Phase(tmp_path, {3: 1.0}, pilot_every=3).run()
    assert phase.piloted == [2, 5, 7]
    assert list(phase.reports) == list(range(8))


def test_a_phase_that_is_done_is_not_trained_on(tmp_path):
    done = Phase(tmp_path, {1: 1.0}, pilot_every=2, stop_at=0.5).run()
    again = Phase(tmp_path, {}, pilot_every=2, stop_at=0.5).run()
    assert again.reports == {}
    assert same_weights(weights(again.model.network), weights(done.model.network))
    assert again.kept() == done.kept()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_phase_that_was_killed_and_resumed_is_the_one_that_was_not_to_the_bit(
    optimizer, tmp_path
):
    whole = Phase(tmp_path / "whole", optimizer=optimizer).run()
    killed = Phase(tmp_path / "killed", optimizer=optimizer, stop_after=4)
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    resumed = Phase(tmp_path / "killed", optimizer=optimizer).run()
    assert list(resumed.reports) == [3, 4, 5, 6, 7]
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))
    assert resumed.kept() == whole.kept()


def test_steps_beyond_the_checkpoint_are_unknown_until_they_are_done_again(tmp_path):
    for stop_after in (4, 3):
        with pytest.raises(KeyboardInterrupt):
            Phase(tmp_path, stop_after=stop_after).run()
    assert [step for step, _ in Phase(tmp_path).kept()[1]] == [0, 1, 2, 3]
