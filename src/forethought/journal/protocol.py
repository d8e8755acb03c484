"""What the loops ask of a run's record."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from forethought.core.trajectory import Group


class StageJournal(Protocol):
    """The record of one stage of a run. What a step logs becomes visible at once, on `commit`."""

    @property
    def next_step(self) -> int:
        """The first step that is not committed yet."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the stage has ended: it is then not repeated."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Note numbers of one step."""
        ...

    def keep(self, step: int, groups: Sequence[Group]) -> None:
        """Note the episodes of one step."""
        ...

    def keep_rewards(self, step: int, rewards: Mapping[str, Mapping[str, float]]) -> None:
        """Note what attempts of one step earned: each component by name, by the episode's id.

        NaN stands for what is not known.
        """
        ...

    def timed(self, step: int, what: str) -> AbstractContextManager[None]:
        """Log the seconds that the block took as `seconds/<what>`."""
        ...

    def commit(self, step: int) -> None:
        """Write all that was noted of `step` in one transaction."""
        ...

    def series(self, metric: str) -> list[tuple[int, float]]:
        """The committed values of one number as (step, value), by step."""
        ...

    def rewind(self, step: int) -> None:
        """Forget every step from `step` on (resuming from an older checkpoint)."""
        ...

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a named JSON document of this stage, at once, in a transaction of its own."""
        ...

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Read a document back; None where there is none."""
        ...

    def finish(self) -> None:
        """Mark the stage as ended."""
        ...
