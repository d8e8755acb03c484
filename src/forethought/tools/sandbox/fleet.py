"""The fork servers that there are: started together, probed, replaced when they fail."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from forethought.core.errors import SandboxError, boundary
from forethought.tools.sandbox.inside.frames import Report
from forethought.tools.settings import PythonSettings

_LOG = logging.getLogger("forethought.tools")


class ForkServer(Protocol):
    """What the pool asks of a server."""

    @property
    def alive(self) -> bool:
        """Whether it may be given calls."""
        ...

    @property
    def wedged(self) -> bool:
        """Whether it was ended because it did not answer; it is not alive then."""
        ...

    @property
    def load(self) -> int:
        """How many calls it has."""
        ...

    async def run(self, code: bytes, stdin: bytes = b"", session: int = 0) -> Report:
        """Run one program. Raises `ServerDiedError`."""
        ...

    async def answers(self, seconds: float) -> bool:
        """Whether it still does anything; if not within so many seconds, it is ended."""
        ...

    def end_session(self, session: int) -> None:
        """Let go of a session's interpreter."""
        ...

    async def close(self) -> None:
        """End it, and wait until it is gone."""
        ...


StartServer = Callable[[PythonSettings], Awaitable[ForkServer]]


class Health(NamedTuple):
    """How often servers are asked whether they are well, and how long they may take to say so."""

    every: float = 5.0
    patience: float = 20.0


class Fleet:
    """The servers of a pool, and how many were replaced: `dead`, `wedged` or `rebuilt`.

    One that has died is replaced while the others go on.
    """

    def __init__(self, settings: PythonSettings, start: StartServer, health: Health) -> None:
        self.replaced = Counter[str]()
        self._settings = settings
        self._start = start
        self._health = health
        self._servers: list[ForkServer] = []
        self._replacing = asyncio.Lock()
        self._mending: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._fails = False
        self._closed = False

    @property
    def servers(self) -> tuple[ForkServer, ...]:
        """Those there are now; none before `open` and after `close`."""
        return tuple(self._servers)

    async def open(self) -> None:
        """Start all of them. Raises `SandboxError`; then none is left."""
        try:
            for _ in range(self._settings.servers):
                self._servers.append(await self.start_another())
        except BaseException:
            await self.close()
            raise
        self._watch = asyncio.create_task(self._watch_over())

    async def close(self) -> None:
        """End all of them, for good, whatever became of the watch over them."""
        self._closed = True
        tasks = [task for task in (self._watch, self._mending) if task is not None]
        self._watch = self._mending = None
        servers, self._servers = self._servers, []
        try:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await asyncio.gather(*(server.close() for server in servers))

    async def start_another(self) -> ForkServer:
        """One more that is not among them, for the caller to close.

        Raises `SandboxError` when it does not start, or the others have been closed.
        """
        self._refuse_closed()
        with boundary(SandboxError, "a fork server could not be started"):
            server = await self._start(self._settings)
        try:
            self._refuse_closed()
        except SandboxError:
            await asyncio.shield(server.close())
            raise
        return server

    async def choose(self, attempt: int = 0) -> ForkServer:
        """The least busy that lives, or for a later attempt another.

        Waits for a server only where none lives, and raises `SandboxError` if it does not start.
        """
        self._refuse_closed()
        if self._some_died and not self._fails:  # else the watch tries again, from time to time
            self._mend()
        while not (alive := [server for server in self._servers if server.alive]):
            mending = self._mend()
            await asyncio.wait({mending})
            self._refuse_closed()
            mending.result()
        alive.sort(key=lambda server: server.load)
        return alive[attempt % len(alive)]

    async def rebuild(self) -> None:
        """Replace every server, the well ones too."""
        async with self._replacing:
            for place in range(len(self._servers)):
                await self._replace(place, "rebuilt")

    @property
    def _some_died(self) -> bool:
        return not all(server.alive for server in self._servers)

    def _mend(self) -> asyncio.Task[None]:
        """What replaces one server that has died, begun now unless it is at work."""
        if self._mending is None or self._mending.done():
            self._mending = asyncio.create_task(self._replace_a_dead_one())
            self._mending.add_done_callback(self._note_mended)
        return self._mending

    async def _replace_a_dead_one(self) -> None:
        async with self._replacing:
            for place, server in enumerate(self._servers):
                if not server.alive:
                    await self._replace(place, "wedged" if server.wedged else "dead")
                    return

    def _note_mended(self, mending: asyncio.Task[None]) -> None:
        error = None if mending.cancelled() else mending.exception()
        self._fails = error is not None
        if error is not None and not self._closed:
            bug = None if isinstance(error, SandboxError) else error
            _LOG.warning("A server of the Python tool was not replaced: %s", error, exc_info=bug)

    async def _replace(self, place: int, why: str) -> None:
        await self._servers[place].close()
        self._servers[place] = await self.start_another()
        self.replaced[why] += 1
        self._fails = False

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox has been closed")

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(self._health.every)
            asked = [server for server in self._servers if server.alive]
            await asyncio.gather(*(s.answers(self._health.patience) for s in asked))
            for _ in self._servers:
                if self._some_died:
                    await asyncio.wait({self._mend()})
                if self._fails:
                    break
