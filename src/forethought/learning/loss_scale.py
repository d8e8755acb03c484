"""How far a loss is multiplied, so that float16 can hold its gradient.

float16 ends at 65,504 and has nothing between 0 and 6e-8: most of a gradient would be lost. So the
loss is multiplied before the way back and the gradient divided after it (arXiv 1710.03740).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch

LARGEST = 2.0**24
"""What the factor grows to. Every factor is a power of 2: multiplying by it rounds nothing."""

PATIENCE = 100
"""Updates in a row after which the factor is doubled. Doubling it too soon costs a gradient that is
made again, and no update."""


@dataclass(slots=True, kw_only=True)
class LossScale:
    """The factor that holds, and for how many updates it has been small enough.

    `moves` is False where numbers need no help, and the factor 1.
    """

    factor: float = 2.0**16
    fitting: int = 0
    moves: bool = True
    _last: float | None = field(default=None, compare=False)

    @classmethod
    def of(cls, dtype: torch.dtype | None) -> Self:
        """The scale to begin with for matrix multiplications in `dtype`."""
        return cls() if dtype is torch.float16 else cls(factor=1.0, moves=False)

    def lower(self) -> bool:
        """Halve the factor for a gradient that it made too large.

        False where it is 1 already: the gradient is to blame, and the factor what it was before.
        """
        self._last = self.factor if self._last is None else self._last
        if self.factor <= 1.0:
            self.factor, self._last = self._last, None
            return False
        self.factor, self.fitting = self.factor / 2, 0
        return True

    def fitted(self) -> None:
        """Count an update whose gradient was finite, and double the factor after many.

        One that needed a much smaller factor leaves half of the one before: it may be a single one.
        """
        if not self.moves:
            return
        if self._last is not None:
            self.factor, self._last = max(self.factor, self._last / 2), None
        self.fitting += 1
        if self.fitting >= PATIENCE:
            self.factor, self.fitting = min(LARGEST, 2 * self.factor), 0

    @property
    def state(self) -> Mapping[str, Any]:
        """What `read` needs; empty where nothing moves."""
        return {"factor": self.factor, "fitting": self.fitting} if self.moves else {}

    def read(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, if there is any and this scale moves."""
        if self.moves and state:
            self.factor, self.fitting = float(state["factor"]), int(state["fitting"])
