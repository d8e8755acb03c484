"""A study's results as a page of tables, and the same as JSON."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from forethought.app.study.outcomes import (
    MEASURES,
    Outcome,
    Rounds,
    exam_over_seeds,
    rounds_over_seeds,
    rounds_to,
)
from forethought.app.study.settings import Study, StudySettings, as_words
from forethought.evaluation.comparison import What, paired_difference
from forethought.evaluation.intervals import SeedMean, over_seeds
from forethought.evaluation.results import Estimate, ExamResult

Outcomes = Mapping[str, Sequence[Outcome]]
"""By variant, then by seed: the same seeds for each variant."""
PAIRED: tuple[What, ...] = ("average", "greedy")
"""What is compared problem by problem."""


def table(study: Study, outcomes: Outcomes) -> str:
    """The page: every variant over seeds, differences to the first, and every run."""
    settings = study.settings
    seeds = len(_first(outcomes))
    return "\n".join(
        [
            f"# {settings.title}",
            "",
            *_compared(study),
            "",
            *_explained(settings, seeds),
            "",
            *_over_seeds(settings, outcomes),
            "",
            "![accuracy and entropy over rounds](figure.svg)",
            "",
            "## Differences",
            "",
            f"To {next(iter(outcomes))}, which began RL with the same weights in the same seed, "
            "paired by problem. Intervals of one seed are over problems, those of all over seeds.",
            "",
            *_differences(outcomes),
            "",
            "## Every run",
            "",
            "Intervals are over problems.",
            "",
            *_runs(settings, outcomes),
            "",
        ]
    )


def as_json(study: Study, outcomes: Outcomes) -> dict[str, Any]:
    """The same figures, unrounded; `low` and `high` are null where no interval is claimed."""
    settings = study.settings
    first = _first(outcomes)
    return {
        "study": study.name,
        "settings": settings.model_dump(mode="json"),
        "overrides": list(study.words),
        "seeds": [outcome.seed for outcome in first],
        "interval": "95 %, Student's t over seeds",
        "before_rl": {
            name: asdict(exam_over_seeds([one.before for one in first], measure))
            for name, measure in MEASURES.items()
        },
        "variants": {
            variant: _variant(settings, runs, None if runs is first else first)
            for variant, runs in outcomes.items()
        },
    }


def rounds(settings: StudySettings, outcome: Outcome) -> Rounds:
    """How many rounds a run took to the accuracy that the study asks for."""
    return rounds_to(settings.reach, outcome.accuracy, settings.smooth)


def differences(first: Sequence[Outcome], other: Sequence[Outcome], what: What) -> list[Estimate]:
    """How much a variant is above the first, one a seed, paired by problem."""
    return [
        paired_difference(one.after, another.after, what)
        for one, another in zip(first, other, strict=True)
    ]


def difference_over_seeds(found: Sequence[Estimate]) -> SeedMean:
    """Their mean, with the interval over seeds."""
    return over_seeds([each.value for each in found], least=-1.0, most=1.0)


def _compared(study: Study) -> Iterator[str]:
    """What all variants share, and what each sets."""
    settings = study.settings
    shared = shlex.join([*as_words(settings.shared), *study.words])
    yield f"- all: {settings.base}{f' `{shared}`' if shared else ''}"
    for name, changes in settings.variants.items():
        yield f"- {name}: {f'`{shlex.join(as_words(changes))}`' if changes else 'as it is'}"


def _explained(settings: StudySettings, seeds: int) -> list[str]:
    reach = (
        f"Rounds to {settings.reach:g}: after how many rounds of RL the mean accuracy of the last "
        f"{settings.smooth} was that high."
    )
    if seeds == 1:
        return [f"One seed, so no interval over seeds is claimed. {reach}"]
    return [
        f"Means over {seeds} seeds with 95 % intervals by Student's t (degrees of freedom: "
        f"{seeds - 1}), which take seeds to scatter normally. An interval is left out where all "
        f"seeds came to the same. {reach}"
    ]


def _over_seeds(settings: StudySettings, outcomes: Outcomes) -> Iterator[str]:
    first = _first(outcomes)
    yield from _head("variant", *_titles(first), f"rounds to {settings.reach:g}")
    yield _row("(before RL)", *_means([one.before for one in first]), "")
    for variant, runs in outcomes.items():
        took = rounds_over_seeds([rounds(settings, one) for one in runs])
        words = took if isinstance(took, str) else f"{took:.1f}"
        yield _row(variant, *_means([one.after for one in runs]), words)


def _means(exams: Sequence[ExamResult]) -> list[str]:
    return [f"{exam_over_seeds(exams, each)}" for each in MEASURES.values()]


def _differences(outcomes: Outcomes) -> Iterator[str]:
    first, (name, *others) = _first(outcomes), list(outcomes)
    yield from _head("difference", "seed", *_titles(first)[: len(PAIRED)])
    for other in others:
        what = f"{other} - {name}"
        found = [differences(first, outcomes[other], kind) for kind in PAIRED]
        for place, one in enumerate(first):
            yield _row(what, str(one.seed), *(_signed(each[place]) for each in found))
        if len(first) > 1:
            yield _row(what, "all", *(f"{difference_over_seeds(each):+.3f}" for each in found))


def _runs(settings: StudySettings, outcomes: Outcomes) -> Iterator[str]:
    yield from _head("variant", "seed", *_titles(_first(outcomes)), f"rounds to {settings.reach:g}")
    for variant, runs in outcomes.items():
        for one in runs:
            yield _row(
                variant,
                str(one.seed),
                str(one.after.average),
                str(one.after.greedy),
                f"{one.after.sampled_tools.calls:.3f}",
                f"{one.after.entropy:.3f}",
                str(rounds(settings, one)),
            )


def _variant(
    settings: StudySettings, runs: Sequence[Outcome], first: Sequence[Outcome] | None
) -> dict[str, Any]:
    took: list[Rounds] = [rounds(settings, one) for one in runs]
    mean = rounds_over_seeds(took)
    found: dict[str, Any] = {
        name: asdict(exam_over_seeds([one.after for one in runs], measure))
        for name, measure in MEASURES.items()
    }
    found["rounds"] = mean if isinstance(mean, str) else asdict(mean)
    found["runs"] = [
        {
            "seed": one.seed,
            "average": one.after.average.model_dump(),
            "greedy": one.after.greedy.model_dump(),
            "calls": one.after.sampled_tools.calls,
            "entropy": one.after.entropy,
            "rounds": its_rounds,
        }
        for one, its_rounds in zip(runs, took, strict=True)
    ]
    if first is not None:
        found["difference_to_first"] = {what: _paired(first, runs, what) for what in PAIRED}
    return found


def _paired(first: Sequence[Outcome], runs: Sequence[Outcome], what: What) -> dict[str, Any]:
    found = differences(first, runs, what)
    return {
        "by_seed": [each.model_dump() for each in found],
        "over_seeds": asdict(difference_over_seeds(found)),
    }


def _first(outcomes: Outcomes) -> Sequence[Outcome]:
    return next(iter(outcomes.values()))


def _titles(runs: Sequence[Outcome]) -> list[str]:
    k = runs[0].after.attempts
    return [each.title.replace("@k", f"@{k}") for each in MEASURES.values()]


def _signed(found: Estimate) -> str:
    return f"{SeedMean(mean=found.value, low=found.low, high=found.high):+.3f}"


def _head(*titles: str) -> tuple[str, str]:
    return _row(*titles), "|---" * len(titles) + "|"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
