"""The circuit breaker: how much infrastructure may fail before something is done about it."""

from collections import deque
from enum import Enum

from forethought.core.errors import RecipeError

WINDOW = 500
"""Calls that are looked back on."""
_REBUILD_SHARE = 0.02
_STOP_SHARE = 0.10
_HOST = (
    "although its servers were built anew: look at the host's memory, processes and disk; "
    "`forethought doctor sandbox` shows what it allows"
)


class Advice(Enum):
    """What to do after a call."""

    GO_ON = 0
    REBUILD = 1


class Breaker:
    """Counts calls that infrastructure failed, over the last 500.

    `remedy` is what is said of them when there are too many.

    >>> breaker = Breaker()
    >>> [breaker.note(failed=True) for _ in range(11)][-1]
    <Advice.REBUILD: 1>
    """

    def __init__(self, remedy: str = _HOST) -> None:
        self._remedy = remedy
        self._recent = deque[bool](maxlen=WINDOW)
        self._since_rebuild = deque[bool](maxlen=WINDOW)

    def note(self, *, failed: bool) -> Advice:
        """Take in one call.

        More than 2 % failures since the last rebuild advise another. More than 10 % raise
        `RecipeError`, since rebuilding has not helped.
        """
        self._recent.append(failed)
        self._since_rebuild.append(failed)
        failures = sum(self._recent) if failed else 0
        if failures > _STOP_SHARE * WINDOW:
            raise RecipeError(
                f"the Python tool could not run {failures} of its last {len(self._recent)} "
                f"programs, {self._remedy}"
            )
        if failed and sum(self._since_rebuild) > _REBUILD_SHARE * WINDOW:
            self._since_rebuild.clear()
            return Advice.REBUILD
        return Advice.GO_ON
