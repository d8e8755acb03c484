"""The line before the servers: so many calls inside, so many waiting, and no more."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from forethought.core.errors import SandboxError

LONG = 0.25
"""Seconds inside after which a call counts as a long one."""


class BusyError(SandboxError):
    """More is asked for at once than the settings allow: no server has failed."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A call that is inside: in a place, or aside."""

    aside: bool = False


class Turnstile:
    """Lets `room` calls in at a time and keeps at most `queue` waiting, first come first served.

    Up to `aside` long ones give up their place to the next in line and go on nevertheless, so that
    a few that take all the time they may do not hold up the many that take none. It can also be
    shut for a while, with nobody inside, to rebuild what is behind it.
    """

    def __init__(self, room: int, queue: int, aside: int = 0) -> None:
        self._places = asyncio.Semaphore(room)
        self._room = room
        self._queue = queue
        self._waiting = 0
        self._most_aside = aside
        self._aside = 0
        self._long = deque[_Ticket]()
        self._nobody_aside = asyncio.Event()
        self._nobody_aside.set()
        self._shutting = asyncio.Lock()

    @asynccontextmanager
    async def inside(self) -> AsyncGenerator[None]:
        """Wait for a place. Raises `BusyError` when too many wait already."""
        if self._places.locked() and self._waiting >= self._queue:
            raise BusyError(
                f"busy: {self._waiting} programs wait for the Python tool already: attempt fewer "
                f"problems at once, or raise tool.queue={self._queue} or tool.servers"
            )
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        ticket = _Ticket()
        alarm = asyncio.get_running_loop().call_later(LONG, self._takes_long, ticket)
        try:
            yield
        finally:
            alarm.cancel()
            self._leave(ticket)

    @asynccontextmanager
    async def shut(self) -> AsyncGenerator[None]:
        """Wait until everybody has left, and let nobody in meanwhile."""
        taken = 0
        async with self._shutting:
            try:
                for _ in range(self._room):
                    await self._places.acquire()
                    taken += 1
                await self._nobody_aside.wait()
                yield
            finally:
                for _ in range(taken):
                    self._places.release()

    def _takes_long(self, ticket: _Ticket) -> None:
        self._long.append(ticket)
        self._step_aside()

    def _leave(self, ticket: _Ticket) -> None:
        with suppress(ValueError):
            self._long.remove(ticket)
        if not ticket.aside:
            self._places.release()
            return
        self._aside -= 1
        self._step_aside()
        if not self._aside:
            self._nobody_aside.set()

    def _step_aside(self) -> None:
        """Let the one that has been inside for longest give up its place, where there is room."""
        if self._long and self._aside < self._most_aside:
            self._long.popleft().aside = True
            self._aside += 1
            self._nobody_aside.clear()
            self._places.release()
