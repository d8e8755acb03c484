"""Upper clips that were published for models of a size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ModelSize = Literal["4b", "7b"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipBounds:
    """Where the upper clip begins, and how high feedback may take it.

    >>> PRESETS["4b"].start
    0.28
    """

    start: float
    ceiling: float


PRESETS: Mapping[ModelSize, ClipBounds] = {
    "4b": ClipBounds(start=0.28, ceiling=0.315),
    "7b": ClipBounds(start=0.315, ceiling=0.315),
}
"""2510.11701: GRPO-TCR has 0.28; DemyAgent-4B was trained with 0.315, and 0.35 harmed a 4B model;
0.315 was the best for a 7B model. No higher value is reported to help, hence the ceilings."""
