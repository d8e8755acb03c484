"""Which settings may differ between a stage's beginning and its going on.

What was trained with one value and goes on with another would be neither, so most may not. Free is
what decides where it is computed, which equals but for rounding, what is kept, and when training
that teaches nothing stops.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic_core import PydanticUndefined, to_jsonable_python

from forethought.core.settings import Settings
from forethought.journal.stage import FINGERPRINT, Stage
from forethought.learning.control.settings import OVER_A_STAGE

FREE = (
    "compute.*",
    "sft.save_every",
    "sft.keep_last",
    "sft.keep_best",
    "rl.checkpoints.*",
    "rl.limits.rounds_without_update",
)
"""Patterns of the keys that bind no stage."""

_Json = dict[str, Any] | list[Any] | str | float | None


def may_differ(stage: Stage, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Patterns of the keys that may differ from those that `stage` was begun with.

    More steps are among them while it trains, unless a schedule depends on their number.
    """
    made = stage.get(FINGERPRINT) or {}
    tables = zip(_trained(stage.name, made), _trained(stage.name, now), strict=False)
    longer = (
        f"{key}.steps"
        for (_, before), (key, after) in tables
        if stage.next_step < before["steps"] < after["steps"] and not _goes_by_its_steps(after)
    )
    return (*FREE, *longer)


def begun_with(stage: Stage, now: Mapping[str, Any], recipe: Settings) -> Mapping[str, Any] | None:
    """The settings that `stage` was begun with, by today's keys; None where none were recorded.

    A setting that there was not yet then counts as its default, which is what the stage did. `now`
    are today's settings, the same sections of `recipe`.
    """
    made = stage.get(FINGERPRINT)
    if made is None:
        return None
    whole = _filled_up(made, recipe)
    if whole.get("rl", {}).get("credit", {}).get("type") == "auto":
        whole["rl"]["credit"]["type"] = "outcome"  # recorded is what it stands for: none was
    return {key: part for key, part in whole.items() if key in {*made, *now}}


def _filled_up(made: Mapping[str, Any], now: Settings) -> dict[str, Any]:
    """A recorded table with the defaults of the settings that it lacks, also in its own tables."""
    filled = {key: _value_filled_up(part, getattr(now, key, None)) for key, part in made.items()}
    for key, field in type(now).model_fields.items():
        default: object = field.get_default(call_default_factory=True)
        if key not in made and default is not PydanticUndefined:
            filled[key] = to_jsonable_python(default)
    return filled


def _value_filled_up(made: _Json, now: object) -> _Json:
    if isinstance(made, dict) and isinstance(now, Settings):
        return _filled_up(made, now)
    if isinstance(made, list) and isinstance(now, tuple):
        today = cast("tuple[object, ...]", now)
        return [*map(_value_filled_up, made, today), *made[len(today) :]]
    return made


def _goes_by_its_steps(table: Mapping[str, Any]) -> bool:
    """Whether what a step does depends on how many there are: by its rate or by its clip."""
    clip: Mapping[str, Any] = table.get("control", {}).get("clip") or {}
    return table["optimizer"]["schedule"] != "constant" or clip.get("schedule") in OVER_A_STAGE


def _trained(stage: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The table of the recipe that says what the stage trains, with its key; none of another."""
    if stage == "rl" and "rl" in settings:
        yield "rl", settings["rl"]
    for number, phase in enumerate(settings.get("sft", {}).get("phases", ())):
        if stage == f"sft_{phase['name']}":
            yield f"sft.phases.{number}", phase
