"""The line before the servers: so many calls inside, so many waiting, and no more."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from forethought.core.errors import SandboxError


class BusyError(SandboxError):
    """More is asked for at once than the settings allow: no server has failed."""


class Turnstile:
    """Lets `room` calls in at a time and keeps at most `queue` waiting, first come first served.

    It can also be shut for a while, with nobody inside, to rebuild what is behind it.
    """

    def __init__(self, room: int, queue: int) -> None:
        self._places = asyncio.Semaphore(room)
        self._room = room
        self._queue = queue
        self._waiting = 0
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
        try:
            yield
        finally:
            self._places.release()

    @asynccontextmanager
    async def shut(self) -> AsyncGenerator[None]:
        """Wait until everybody has left, and let nobody in meanwhile."""
        taken = 0
        async with self._shutting:
            try:
                for _ in range(self._room):
                    await self._places.acquire()
                    taken += 1
                yield
            finally:
                for _ in range(taken):
                    self._places.release()
