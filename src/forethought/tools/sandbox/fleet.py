"""The fork servers that there are: started together, probed, replaced when they fail."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from forethought.core.errors import SandboxError, boundary
from forethought.tools.sandbox.inside.frames import Report
from forethought.tools.settings import PythonSettings


class ForkServer(Protocol):
    """What the pool asks of a server."""

    @property
    def alive(self) -> bool:
        """Whether it may be given calls."""
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
    """The servers of a pool, and how many were replaced: `dead`, `wedged` or `rebuilt`."""

    def __init__(self, settings: PythonSettings, start: StartServer, health: Health) -> None:
        self.replaced = Counter[str]()
        self._settings = settings
        self._start = start
        self._health = health
        self._servers: list[ForkServer] = []
        self._mending = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
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
        watch, self._watch = self._watch, None
        servers, self._servers = self._servers, []
        try:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
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
        """The least busy, or for a later attempt another. Raises `SandboxError`."""
        await self._mend()
        self._refuse_closed()
        servers = sorted(self._servers, key=lambda server: server.load)
        return servers[attempt % len(servers)]

    async def rebuild(self) -> None:
        """Replace every server, the well ones too."""
        async with self._mending:
            for place in range(len(self._servers)):
                await self._replace(place, "rebuilt")

    async def _mend(self) -> None:
        if all(server.alive for server in self._servers):
            return
        async with self._mending:
            for place, server in enumerate(self._servers):
                if not server.alive:
                    await self._replace(place, "dead")

    async def _replace(self, place: int, why: str) -> None:
        await self._servers[place].close()
        self._servers[place] = await self.start_another()
        self.replaced[why] += 1

    def _refuse_closed(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox has been closed")

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(self._health.every)
            asked = [server for server in self._servers if server.alive]
            answers = await asyncio.gather(*(s.answers(self._health.patience) for s in asked))
            self.replaced.update("wedged" for answer in answers if not answer)
            with suppress(SandboxError):  # the next call will try again, and be told
                await self._mend()
