"""What becomes of updates whose numbers are not finite."""

import math
import warnings
from dataclasses import dataclass

from forethought.core.errors import RecipeError
from forethought.learning.settings import OptimizerSettings

MOST_SKIPPED = 10
"""Updates in a row that may be skipped before training stops."""


class SkippedUpdate(UserWarning):
    """An update that was not made, since its loss or its gradient was not finite."""


@dataclass(slots=True, kw_only=True)
class FiniteGuard:
    """Counts updates that were not made, and ends a run that has too many of them in a row.

    `section` is where the recipe holds the optimiser, for messages; `float16` says that numbers may
    have been too large for that alone.
    """

    section: str
    optimizer: OptimizerSettings
    float16: bool = False
    skipped: int = 0

    def made(self, update: int, ratio: float) -> None:
        """Note that update number `update` changed the weights by `ratio` of themselves.

        Raises `RecipeError` where it left weights that are not finite.
        """
        self.skipped = 0
        if math.isfinite(ratio):
            return
        raise RecipeError(
            f"{self._rate}, {self.section}.weight_decay = {self.optimizer.weight_decay}: update "
            f"{update} left weights that are not finite; lower them and begin in another --run "
            "folder (the last checkpoint is untouched)"
        )

    def skip(self, update: int, whose: str) -> None:
        """Warn of an update that was not made; `whose` tells whose numbers were not finite.

        Raises `RecipeError` when it is the last of `MOST_SKIPPED` in a row.
        """
        self.skipped += 1
        if self.skipped < MOST_SKIPPED:
            warnings.warn(
                f"update {update}: its loss or gradient is not finite ({whose}), so it was not "
                "made",
                SkippedUpdate,
                stacklevel=2,
            )
            return
        wider = ', or set compute.precision = "float32",' if self.float16 else ""
        raise RecipeError(
            f"{self._rate}: {self.skipped} updates in a row had a loss or gradient that is not "
            f"finite ({whose}), the last finite one was update {update - self.skipped}; lower the "
            f"rate{wider} and begin in another --run folder (the last checkpoint is untouched)"
        )

    @property
    def _rate(self) -> str:
        return f"{self.section}.rate = {self.optimizer.rate}"
