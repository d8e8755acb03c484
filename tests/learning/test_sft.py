"""A phase of imitation: the loss falls, the pilot ends it, and a finished phase stays finished."""

import asyncio
from dataclasses import dataclass, field

import pytest

from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.demonstrations import Demonstrations
from forethought.learning.held_out import best_first
from forethought.learning.keeping import Keeping
from forethought.learning.settings import PhaseSettings, SFTOptimizerSettings
from forethought.learning.sft import HeldOutPlan, SFTPlan, train_phase
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
    batch: int = 8
    held_out: list | None = None
    keep_best: int = 0
    said: list = field(default_factory=list)

    def __post_init__(self):
        self.model = local_model(spread=0.1)
        self.reports = {}
        self.piloted = []

    async def pilot(self, step):
        self.piloted.append(step)
        return {"pilot/sampled": self.pilots.get(step, 0.0)}

    async def measure(self):
        return {"held_out/loss": self.held_out.pop(0)}

    def measuring(self):
        """What is held out is foretold as a list says, in every second step."""
        if self.held_out is None:
            return None
        return HeldOutPlan(
            measure=self.measure, every=2, keep_best=self.keep_best, say=self.said.append
        )

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
            batch=self.batch,
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
            held_out=self.measuring(),
        )
        crew = crew_of(self.model, self.workers)
        learner = learner_of(self.model, crew, steps=self.steps, **optimizer.model_dump())
        try:
            with Run.create_or_open(self.folder / "run", {}) as run:
                stage = run.stage("sft")
                checkpoints = Checkpoints(
                    folder=run.checkpoints / "s",
                    keep_best=self.keep_best,
                    ranking=lambda: best_first(stage.series("held_out/loss")),
                )
                keeping = Keeping(journal=stage, checkpoints=checkpoints)
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


@pytest.mark.parametrize(
    ("stop_after", "left"), [(1, [0, 1, 2, 3, 4, 5]), (2, [3, 4, 5]), (4, [3, 4, 5]), (5, [])]
)
def test_a_phase_saved_at_the_end_of_an_epoch_goes_on_with_the_next(stop_after, left, tmp_path):
    # Twelve rows with calls, four a step: an epoch is three steps, and each ends in a checkpoint.
    with pytest.raises(KeyboardInterrupt):
        Phase(tmp_path, steps=6, batch=5, stop_after=stop_after).run()
    resumed = Phase(tmp_path, steps=6, batch=5).run()
    assert list(resumed.reports) == left
    checkpoints, losses = resumed.kept()
    assert checkpoints == [2, 5]
    assert [step for step, _ in losses] == [0, 1, 2, 3, 4, 5]


def test_the_best_checkpoints_are_saved_when_they_are_made_and_stay(tmp_path):
    losses = [3.0, 1.0, 2.0, 1.5, 4.0]
    phase = Phase(tmp_path, steps=10, save_every=100, keep_best=2, held_out=losses).run()
    assert phase.kept()[0] == [3, 7, 9]


def test_without_a_best_to_keep_nothing_is_saved_for_it(tmp_path):
    losses = [3.0, 1.0, 2.0, 1.5, 4.0]
    phase = Phase(tmp_path, steps=10, save_every=100, held_out=losses).run()
    assert phase.kept()[0] == [9]
    assert phase.said == []


def test_what_begins_to_be_learnt_by_heart_is_said_early_and_once(tmp_path):
    losses = [1.0, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4]
    phase = Phase(tmp_path, steps=14, held_out=losses).run()
    assert phase.said == [
        "step 9: loss on held-out demonstrations has risen 3 times in a row (0.900, 1.000, 1.100, "
        "1.200) while training loss fell: they are being learnt by heart. Fewer steps, more "
        'demonstrations or sft.keep = "best" help'
    ]


def test_a_killed_phase_measures_and_keeps_what_an_undisturbed_one_does(tmp_path):
    losses = [3.0, 1.0, 2.0, 1.5]
    whole = Phase(tmp_path / "whole", keep_best=1, held_out=[*losses]).run()
    with pytest.raises(KeyboardInterrupt):
        Phase(tmp_path / "killed", keep_best=1, held_out=[*losses], stop_after=6).run()
    resumed = Phase(tmp_path / "killed", keep_best=1, held_out=losses[3:]).run()
    assert list(resumed.reports) == [6, 7]
    assert resumed.kept() == whole.kept()
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))
