"""What a run did, step by step and second by second, ready to be shown."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from markupsafe import Markup

from forethought.journal.reading import StageSummary
from forethought.journal.run import Run
from forethought.watch.phases import Phase, ending, read_phases
from forethought.watch.plots import curve, histogram
from forethought.watch.recipe import table

_SECONDS = "seconds/"
_REWARD = "reward/mean"
_DEEDS = {
    "collect": "was given demonstrations, recorded with the real tool",
    "sft": "learnt to imitate demonstrations",
    "measure": "tried problems, to practise on those that it solves sometimes",
    "rl": "practised on problems and was rewarded for right answers",
    "eval": "sat an exam",
}
_IMPORTED = "was given demonstrations from a file, taken as they are"
_CHAPTERS = {"sft": "Imitation", "rl": "Practice"}
CURVES = {
    "sft": (
        ("loss", "Loss, nats a token"),
        ("pilot/sampled", "Pilot accuracy, sampled"),
    ),
    "rl": (
        (_REWARD, "Mean reward"),
        ("accuracy", "Accuracy"),
        ("entropy", "Entropy, nats a token"),
        ("tool/rate", "Attempts with a call"),
        ("tool/success", "Calls that went well"),
        ("tokens/mean", "Tokens an attempt"),
        ("groups/informative", "Groups that differ within"),
        ("clip_low", "Tokens clipped from below"),
        ("clip_high", "Tokens clipped from above"),
        ("grad_norm", "Gradient norm"),
    ),
}
"""The series that are drawn, by kind of stage: their names in the journal, and in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One stage in words; `duration` is its wall-clock time, pauses included.

    `ending` says why a phase of imitation with a target ended when it did.
    """

    name: str
    words: str
    steps: int
    finished: bool
    duration: float | None
    seconds: tuple[tuple[str, float], ...]
    ending: str

    @property
    def total(self) -> float:
        """Seconds that the stage accounts for."""
        return sum(spent for _, spent in self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One series with its figure, and its means: over all, the first and the last tenth.

    One value is mostly noise; where a tenth would be one (`ends` is None), none is singled out.
    """

    stage: str
    metric: str
    title: str
    steps: int
    mean: float
    ends: tuple[float, float] | None
    figure: Markup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The curves of one stage."""

    title: str
    stage: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """What the measure stage found out about the problems."""

    problems: int
    kept: int
    dropped_all_right: int
    dropped_all_wrong: int
    figure: Markup


def deeds(run: Run) -> list[Deed]:
    """Every stage of the run, with where its time went (longest first)."""
    phases = {phase.stage: phase for phase in read_phases(run.recipe)}
    return [
        Deed(
            name=stage.name,
            words=_words(run, stage.name),
            steps=stage.steps,
            finished=stage.finished,
            duration=None if stage.ended_at is None else stage.ended_at - stage.begun_at,
            seconds=_seconds(run, stage.name),
            ending=_ending(run, stage, phases.get(stage.name)),
        )
        for stage in run.stages()
    ]


def _words(run: Run, stage: str) -> str:
    if stage == "collect" and table(run.recipe, "collect").get("trajectories"):
        return _IMPORTED
    return _DEEDS.get(_kind(stage), "went through a stage")


def chapters(run: Run) -> list[Chapter]:
    """The series that every reader wants to see, those that there are, by stage.

    Where a reward has several components that are not always 0, how much of it each makes up is
    told beside the mean.
    """
    found = [
        Chapter(
            title=_CHAPTERS.get(_kind(stage.name), ""),
            stage=stage.name,
            curves=tuple(
                found
                for metric, title in _drawn(run, stage.name)
                if (found := _curve(run, stage.name, metric, title)) is not None
            ),
        )
        for stage in run.stages()
    ]
    return [chapter for chapter in found if chapter.curves]


def other_series(run: Run) -> list[Curve]:
    """All further series, without figures."""
    return [
        found
        for stage in run.stages()
        for drawn in [dict(_drawn(run, stage.name))]
        for metric in run.metrics(stage.name)
        if metric not in drawn
        and not metric.startswith(_SECONDS)
        and (found := _curve(run, stage.name, metric, "")) is not None
    ]


def difficulty(run: Run) -> Difficulty | None:
    """The pass rates of the measure stage; None where it has not said."""
    document: Mapping[str, Any] | None = run.document("measure", "difficulty")
    if not document or not document["pass_rates"]:
        return None
    rates = list(document["pass_rates"].values())
    return Difficulty(
        problems=len(rates),
        kept=document["kept"],
        dropped_all_right=document["dropped_all_right"],
        dropped_all_wrong=document["dropped_all_wrong"],
        figure=histogram(rates),
    )


def tenths(values: Sequence[float]) -> tuple[float, float] | None:
    """The means of the first and of the last tenth; None of fewer than twenty values.

    >>> tenths([1.0, 3.0, *[9.0] * 16, 5.0, 7.0])
    (2.0, 6.0)
    """
    count = len(values) // 10
    return (fmean(values[:count]), fmean(values[-count:])) if count > 1 else None


def _kind(stage: str) -> str:
    """What a stage does: a stage in parts is called `sft_first`, `eval_before` and so on."""
    return stage.partition("_")[0]


def _drawn(run: Run, stage: str) -> list[tuple[str, str]]:
    """The series of a stage that are drawn, and their titles."""
    drawn: list[tuple[str, str]] = []
    for metric, title in CURVES.get(_kind(stage), ()):
        drawn.append((metric, title))
        if metric == _REWARD:
            drawn += _shares(run, stage)
    return drawn


def _shares(run: Run, stage: str) -> list[tuple[str, str]]:
    """How much of the reward each component makes up; of one alone there is nothing to tell."""
    found = [
        (metric, f"Share of the reward: {metric.split('/')[1].replace('_', ' ')}")
        for metric in run.metrics(stage)
        if metric.startswith("reward/")
        and metric.endswith("/share")
        and any(value > 0 for _, value in run.series(stage, metric))
    ]
    return found if len(found) > 1 else []


def _curve(run: Run, stage: str, metric: str, title: str) -> Curve | None:
    series: Sequence[tuple[int, float]] = run.series(stage, metric)
    finite = [value for _, value in series if math.isfinite(value)]
    if not finite:
        return None
    return Curve(
        stage=stage,
        metric=metric,
        title=title,
        steps=len(series),
        mean=fmean(finite),
        ends=tenths(finite),
        figure=curve(series) if title else None,
    )


def _ending(run: Run, stage: StageSummary, phase: Phase | None) -> str:
    if phase is None or not stage.finished:
        return ""
    return ending(phase, stage.steps, run.series(stage.name, "pilot/sampled"))


def _seconds(run: Run, stage: str) -> tuple[tuple[str, float], ...]:
    spent = [
        (metric.removeprefix(_SECONDS), sum(value for _, value in run.series(stage, metric)))
        for metric in run.metrics(stage)
        if metric.startswith(_SECONDS)
    ]
    return tuple(sorted(spent, key=lambda pair: -pair[1]))
