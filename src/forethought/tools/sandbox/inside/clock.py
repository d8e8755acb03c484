"""How long a program may go on when others make it wait for its turn."""

LET_RUN = 0.25
"""The part of its time for which a program that waits for turns is let run at least."""

PATIENCE = 5
"""How many times its time a program may take in the end, however long it had to wait."""


class Clock:
    """A program's time. It runs on while the program waits, but never takes all of it away.

    >>> clock = Clock(100.0, 4.0)
    >>> clock.due
    104.0
    >>> clock.wait(100.5)
    >>> clock.due
    120.0
    >>> clock.go_on(106.5)
    >>> clock.due
    107.0
    """

    def __init__(self, now: float, seconds: float) -> None:
        self._begin = now
        self._seconds = seconds
        self._waited = 0.0
        self._waits_since: float | None = None

    def wait(self, now: float) -> None:
        """The program has to wait from now on, if it does not already."""
        if self._waits_since is None:
            self._waits_since = now

    def go_on(self, now: float) -> None:
        """The program is let run, if it is not already."""
        if self._waits_since is not None:
            self._waited += now - self._waits_since
            self._waits_since = None

    @property
    def due(self) -> float:
        """When its time is over if it waits, or is let run, as it does at the moment."""
        most = self._begin + self._seconds * PATIENCE
        has_run = self._begin + self._waited + self._seconds * LET_RUN
        if self._waits_since is not None and self._waits_since < has_run:
            return most
        return min(most, max(self._begin + self._seconds, has_run))
