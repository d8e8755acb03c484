"""Signs that a policy collapses, read from the metrics of past steps. Nothing is changed by them.

Pure predicates. What is done about a sign (a line in the log, a checkpoint, an end) is not decided
here. Thresholds are this project's own; 2510.11701 and 2505.22617 describe the mechanisms.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from pydantic import Field, PositiveFloat, PositiveInt

from forethought.core.settings import Settings
from forethought.learning.control.protocol import measured

Metrics = Mapping[str, float]
History = Sequence[Metrics]

OUTCOME = ("outcome", "partial", "overlong", "tool_bonus")
"""Components of a reward that are not about the way to the answer."""


class CollapseSettings(Settings):
    """From where on a metric is a sign, and for how long."""

    window: PositiveInt = 20
    """Steps in a row, each measured, for which a sign must hold."""
    entropy_share: float = Field(default=0.1, ge=0)
    """Entropy below this share of the first that was measured."""
    entropy_nats: float = Field(default=0.05, ge=0)
    """Entropy below this."""
    uninformative: PositiveFloat = 0.7
    """More than this share of groups teaches nothing."""
    clipped: PositiveFloat = 0.05
    """More than this share of tokens is held by the upper clip."""
    tool_share: float = Field(default=0.05, ge=0)
    """Attempts that call below this share of the first rate of calling that was measured."""
    unfinished: PositiveFloat = 0.2
    """More than this share of attempts runs into a limit."""
    gradient: PositiveFloat = 5.0
    """A gradient's norm above this many medians of all steps."""
    process: PositiveFloat = 0.5
    """More than this share of what rewards pay is for the way to an answer."""


def signs(history: History, settings: CollapseSettings) -> tuple[str, ...]:
    """The names of the signs that held in each of the last `settings.window` steps.

    A step that lacks a sign's metric does not show it: what was not measured is no sign.

    >>> signs([{"entropy": 0.01}] * 20, CollapseSettings())
    ('entropy',)
    """
    last = history[-settings.window :]
    if len(last) < settings.window:
        return ()
    return tuple(
        name
        for name, shown in SIGNS.items()
        if all(shown(metrics, history, settings) for metrics in last)
    )


def entropy_is_low(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether entropy is near 0, or a small share of what it began at."""
    entropy, first = measured(metrics, "entropy"), _first(history, "entropy")
    if entropy is None or first is None:
        return False
    return entropy < settings.entropy_nats or entropy < settings.entropy_share * first


def groups_teach_nothing(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether most groups have nothing to compare."""
    informative = measured(metrics, "groups/informative")
    return informative is not None and 1.0 - informative > settings.uninformative


def clip_holds_much(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether the upper clip holds many tokens."""
    return _above(metrics, "clip_high", settings.clipped)


def tool_is_avoided(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether attempts hardly call any more, though they once did."""
    rate, first = measured(metrics, "tool/rate"), _first(history, "tool/rate")
    return rate is not None and first is not None and rate < settings.tool_share * first


def attempts_run_out(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether many attempts run into a limit."""
    return _above(metrics, "unfinished", settings.unfinished)


def gradient_is_large(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether a gradient's norm is far above the median of all steps."""
    norms = [norm for each in history if (norm := measured(each, "grad_norm")) is not None]
    return bool(norms) and _above(metrics, "grad_norm", settings.gradient * median(norms))


def process_outweighs(metrics: Metrics, history: History, settings: CollapseSettings) -> bool:
    """Whether rewards pay more for the way to an answer than for the answer."""
    shares = [
        value
        for name, value in metrics.items()
        if name.startswith("reward/")
        and name.endswith("/share")
        and name.split("/")[1] not in OUTCOME
    ]
    return sum(shares) > settings.process


Sign = Callable[[Metrics, History, CollapseSettings], bool]

SIGNS: dict[str, Sign] = {
    "entropy": entropy_is_low,
    "groups": groups_teach_nothing,
    "clip": clip_holds_much,
    "tool": tool_is_avoided,
    "length": attempts_run_out,
    "gradient": gradient_is_large,
    "process": process_outweighs,
}
"""What is looked for, by name."""


def _above(metrics: Metrics, name: str, limit: float) -> bool:
    value = measured(metrics, name)
    return value is not None and value > limit


def _first(history: History, name: str) -> float | None:
    found = (measured(metrics, name) for metrics in history)
    return next((value for value in found if value is not None), None)
