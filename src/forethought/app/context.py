"""What every stage works with: the recipe, the run on disk, and the person who watches."""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from forethought.app.calibration import as_document, circumstances, setting
from forethought.app.engine import (
    Engine,
    available_memory,
    chosen_device,
    compute_in_one_thread,
    start_engine,
)
from forethought.app.memory import caution
from forethought.app.problems import Division, TrainingSide, training_side
from forethought.app.recipe import Recipe
from forethought.app.resumption import FREE, begun_with, may_differ
from forethought.app.show import Bar, Show
from forethought.core.errors import RecipeError
from forethought.core.trajectory import Group
from forethought.journal.files import readable, written_beside
from forethought.journal.run import Run
from forethought.journal.stage import Stage
from forethought.learning.checkpoint import Checkpoints, refuse_damaged
from forethought.learning.held_out import HELD_OUT_LOSS, best_first
from forethought.learning.keeping import Keeping, Watcher
from forethought.learning.practice import best_rounds_first
from forethought.learning.precision import faster_precision
from forethought.learning.settings import PhaseSettings
from forethought.policy.local.models import LocalModel, load_local

COLLECT = ("seed", "problems", "tool", "agent", "compute", "collect")
SFT = (*COLLECT, "model", "sampling", "sft")
MEASURE = (*SFT, "measure")
RL = (*MEASURE, "rl")

CALIBRATION = "calibration.json"
"""In a run's folder: who computes fastest, and how fast."""
CHOSEN = "chosen"
"""A training stage's document that names the step whose weights it ended with, if not the last."""
MOST_UNMEASURED = 0.1
"""The share of attempts that broken infrastructure may take where no setting says otherwise."""


class Context:
    """One run of one recipe, watched by one person."""

    def __init__(self, recipe: Recipe, run: Run, show: Show) -> None:
        """Put the three together; nothing is read or written yet."""
        compute_in_one_thread()
        self.recipe = recipe
        self.run = run
        self.show = show

    @cached_property
    def training(self) -> TrainingSide:
        """The training problems by purpose."""
        return training_side(self.recipe.problems, self._division, self.recipe.seed)

    @property
    def _division(self) -> Division:
        recipe = self.recipe
        return Division(
            pilot=recipe.sft.pilot_problems if recipe.sft.pilot_every else 0,
            measure=recipe.measure.problems,
            collect=0 if recipe.collect.trajectories else recipe.collect.problems,
        )

    def begin(
        self, name: str, sections: tuple[str, ...], phases: int | None = None
    ) -> Stage | None:
        """The stage's journal; None when the stage was finished before.

        `phases` is how many SFT phases it depends on (all of them if None): a phase does not
        depend on those after it. Raises `RecipeError` when the stage, or a finished one that it
        builds on, was begun with other settings in one of its sections.
        """
        self.refuse_other_recipe(sections, phases)
        stage = self.run.stage(name)
        if stage.finished:
            self._compare(stage, sections, phases)
            self.show.say(f"{name}: done before, not repeated")
            return None
        settings = self._fingerprint(sections, phases)
        earlier = begun_with(stage, settings, self.recipe)
        if changed := stage.begin(settings, may_differ(stage, settings), earlier):
            self.show.say(f"{name} goes on with other settings: {'; '.join(changed)}")
        return stage

    def refuse_other_recipe(self, sections: tuple[str, ...], phases: int | None = None) -> None:
        """Raise `RecipeError` where what `sections` build on was made with another recipe."""
        for name, its_sections, its_phases in self._training_stages():
            earlier = set(its_sections) <= set(sections)
            earlier &= phases is None or its_phases <= phases
            stage = self.run.stage(name)
            if earlier and stage.finished:
                self._compare(stage, its_sections, its_phases)

    def _training_stages(self) -> Iterator[tuple[str, tuple[str, ...], int]]:
        """The stages before the last exam, each with the sections and phases it depends on."""
        phases = self.recipe.sft.phases
        yield "collect", self.collect_sections, 0
        for number, phase in enumerate(phases, start=1):
            yield phase_stage(phase), SFT, number
        yield "measure", MEASURE, len(phases)
        yield "rl", RL, len(phases)

    @property
    def collect_sections(self) -> tuple[str, ...]:
        """The sections that collection depends on: a teacher that is a model samples, too."""
        return COLLECT if self.recipe.collect.teacher is None else (*COLLECT, "sampling")

    def _compare(self, stage: Stage, sections: tuple[str, ...], phases: int | None) -> None:
        """Refuse a recipe other than the one that a finished stage was made with."""
        settings = self._fingerprint(sections, phases)
        stage.begin(settings, FREE, begun_with(stage, settings, self.recipe))

    def _fingerprint(self, sections: tuple[str, ...], phases: int | None) -> dict[str, Any]:
        settings: dict[str, Any] = self.recipe.model_dump(mode="json")
        settings["sft"]["phases"] = settings["sft"]["phases"][:phases]
        # What `auto` stands for here, whatever it will stand for later.
        settings["rl"]["credit"]["type"] = self.recipe.rl.credited
        division = {"pilot": self._division.pilot, "measure": self._division.measure}
        return {key: settings[key] for key in sections} | {"set_apart": division}

    def finished(self, name: str, command: str) -> None:
        """Raise `RecipeError` unless the stage called `name` has finished."""
        if not self.run.stage(name).finished:
            raise RecipeError(
                f"{self.run.path}: stage {name} has not finished yet; run it first: {command}"
            )

    def keeping(self, stage: Stage) -> Keeping:
        """Where a training stage keeps things."""
        return Keeping(journal=stage, checkpoints=self._checkpoints(stage))

    def _checkpoints(self, stage: Stage) -> Checkpoints:
        folder, say = self.run.checkpoints / stage.name, self.show.say
        if stage.name == "rl":
            kept = self.recipe.rl.checkpoints
            return Checkpoints(
                folder=folder,
                keep_last=kept.keep_last,
                keep_best=kept.keep_best,
                ranking=lambda: best_rounds_first(stage.series("accuracy"), kept.save_every),
                say=say,
            )
        sft = self.recipe.sft
        return Checkpoints(
            folder=folder,
            keep_last=sft.keep_last,
            keep_best=sft.best_kept,
            ranking=lambda: best_first(stage.series(HELD_OUT_LOSS)),
            say=say,
        )

    def trained(self, name: str) -> Path:
        """The folder with the weights that the finished training stage `name` ended with."""
        stage = self.run.stage(name)
        chosen = stage.get(CHOSEN) or {"step": stage.next_step - 1}
        folder = self.run.checkpoints / name / str(chosen["step"])
        with readable(folder):
            there = folder.is_dir()
        if not there:
            raise RecipeError(
                f"{self.run.checkpoints / name} holds no checkpoint of the finished stage {name}"
                f" (step {chosen['step']}); restore the folder from a copy, or run that stage in "
                "another --run folder"
            )
        return folder

    def load(self, name: str) -> LocalModel:
        """The model that the finished training stage `name` ended with.

        Raises `RecipeError` where it is not as it was written: an older one would be another.
        """
        folder = self.trained(name)
        refuse_damaged(folder)
        model = load_local(str(folder))
        # Checkpoints did not always say it; the recipe binds all stages that trained them.
        return replace(model, thinking=model.thinking or self.recipe.sampling.thinking)

    @contextmanager
    def engine(
        self, model: LocalModel, *, with_reference: bool = False, trains: bool = False
    ) -> Generator[Engine]:
        """The engine for `model`; who computes is found out once, so that runs resume alike.

        `trains` says that it learns, too.
        """
        compute, kept = self.recipe.compute, self.run.path / CALIBRATION
        if compute.workers == "auto" and (known := _calibrated(kept, model)) is not None:
            compute = compute.model_copy(update={"workers": known})
        if trains:
            available = available_memory(chosen_device(compute))
            if word := caution(model, compute, self.recipe.agent.max_tokens, available):
                self.show.say(word)
        with start_engine(
            model,
            compute,
            with_reference=with_reference,
            optimizers=self.recipe.optimizers,
            trains=trains,
        ) as engine:
            if engine.calibration is not None:
                document = as_document(engine.calibration, model, engine.workers)
                with written_beside(kept) as file:
                    file.write(json.dumps(document))
                again = f"{setting(engine.workers)} repeats it"
                self.show.say(f"calibration: {engine.calibration} ({again})")
                if faster := faster_precision(self.recipe.compute.precision, model.parameters):
                    self.show.say(faster)
            yield engine

    @property
    def last_phase(self) -> PhaseSettings:
        """The phase that SFT ends with."""
        return self.recipe.sft.phases[-1]

    def watcher(self, bar: Bar, shown: Mapping[str, str]) -> Watcher:
        """Tell `bar` of each step; `shown` maps metrics to the words for them."""

        latest: dict[str, float] = {}

        def step(number: int, report: dict[str, float]) -> None:
            latest.update(report)
            parts = (f"{word} {latest[name]:.3f}" for name, word in shown.items() if name in latest)
            bar.note("  ".join(parts))
            bar.advance()

        return step


def _calibrated(kept: Path, model: LocalModel) -> int | None:
    """The number of workers that was found best for such a model on such a machine."""
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        return int(found["workers"]) if circumstances(model).items() <= found.items() else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None  # not there, or not whole: it is found out again


def phase_stage(phase: PhaseSettings) -> str:
    """The name of a phase's stage."""
    return f"sft_{phase.name}"


def accuracy(groups: Sequence[Group]) -> dict[str, float]:
    """The share of measured attempts that were right, as a metric; none where none was measured."""
    right = [episode.right for group in groups for episode in group.measured]
    return {"accuracy": fmean(right)} if right else {}
