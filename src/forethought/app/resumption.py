"""Which settings may differ between a stage's beginning and its going on.

What was trained with one value and goes on with another would be neither, so most may not. Free is
what decides where it is computed, which equals but for rounding, and what is kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from forethought.journal.stage import FINGERPRINT, Stage
from forethought.learning.control.settings import OVER_A_STAGE

FREE = (
    "compute.*",
    "sft.save_every",
    "sft.keep_last",
    "sft.keep_best",
    "rl.save_every",
    "rl.keep_last",
)
"""Patterns of the keys that bind no stage."""


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
