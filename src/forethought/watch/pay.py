"""What a run's recipe paid for, where that decides how a gain is to be read."""

from collections.abc import Mapping
from typing import Any

from forethought.watch.finding import Finding, Kind
from forethought.watch.recipe import table

BY_CALL = {
    "gated": "a wrong answer cost less for each call that went well",
    "paper": "each call that went well earned something, with wrong answers and with right ones",
}
"""What calls earn, by the variant of the reward; the others pay for none."""


def for_calls(recipe: Mapping[str, Any]) -> str:
    """What calls earned by themselves, in words; empty where that was nothing.

    Raises `ValueError` where the recipe's `rl` or its `reward` is no table.

    >>> for_calls({"rl": {"reward": {"variant": "outcome", "tool_bonus": 0.1, "bonus_cap": 4}}})
    ''
    """
    reward = table(recipe, "rl", "reward")
    if not reward.get("tool_bonus") or not reward.get("bonus_cap"):
        return ""
    return BY_CALL.get(str(reward.get("variant")), "")


def caution(recipe: Mapping[str, Any]) -> Finding | None:
    """That calling was paid for by itself, where it was; it is part of why a model calls."""
    paid = for_calls(recipe)
    if not paid:
        return None
    return Finding(
        kind=Kind.CAUTION,
        text=f"Practice paid for calls by themselves: {paid} (rl.reward.tool_bonus). That it calls "
        "more often is therefore not only what right answers taught it; a run with the bonus at 0 "
        "would tell.",
    )
