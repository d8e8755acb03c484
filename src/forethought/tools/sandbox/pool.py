"""Several fork servers as one: shares out calls, replaces the dead, decides who is to blame."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.inside.frames import End, Report
from forethought.tools.sandbox.outcome import Kind, Outcome, judge
from forethought.tools.sandbox.server import ServerDiedError, start_server
from forethought.tools.settings import PythonSettings

_ATTEMPTS = 3


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

    async def run(self, code: bytes) -> Report:
        """Run one program. Raises `ServerDiedError`."""
        ...

    async def close(self) -> None:
        """End it, and wait until it is gone."""
        ...


StartServer = Callable[[PythonSettings], Awaitable[ForkServer]]


class Pool:
    """Runs programs on the least busy server; used as an async context."""

    def __init__(self, settings: PythonSettings, start: StartServer = start_server) -> None:
        self._settings = settings
        self._start = start
        self._servers: list[ForkServer] = []
        self._room = asyncio.Semaphore(settings.servers * settings.calls_per_server)
        self._mending = asyncio.Lock()
        self._quarantine = asyncio.Lock()

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._settings.servers):
                self._servers.append(await self._start(self._settings))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def run(self, code: str) -> Outcome:
        """Run one program, in line behind others if need be.

        Raises `SandboxError` when no server could even begin it. A program whose server dies
        under it runs once more, alone: if that server dies too, the program is to blame.
        """
        source = code.encode()
        async with self._room:
            if not self._servers:
                raise RuntimeError("the sandbox is not open: enter it with `async with` first")
            failure = "no server"
            for attempt in range(_ATTEMPTS):
                server = await self._choose(attempt)
                try:
                    report = await server.run(source)
                except ServerDiedError:
                    return await self._run_alone(source)
                if report.end is not End.SETUP:
                    return judge(report, self._settings.cpu_seconds)
                failure = report.err.decode("utf-8", "replace")
            raise SandboxError(f"no server could start a program: {failure}")

    async def _choose(self, attempt: int) -> ForkServer:
        await self._mend()
        servers = sorted(self._servers, key=lambda server: server.load)
        return servers[attempt % len(servers)]

    async def _mend(self) -> None:
        if all(server.alive for server in self._servers):
            return
        async with self._mending:
            for place, server in enumerate(self._servers):
                if not server.alive:
                    await server.close()
                    self._servers[place] = await self._start(self._settings)

    async def _run_alone(self, source: bytes) -> Outcome:
        async with self._quarantine:
            server = await self._start(self._settings)
            try:
                report = await server.run(source)
            except ServerDiedError:
                return Outcome(kind=Kind.CRASH, detail="a fault that ended its server")
            finally:
                await asyncio.shield(server.close())
        if report.end is End.SETUP:
            raise SandboxError(report.err.decode("utf-8", "replace"))
        return judge(report, self._settings.cpu_seconds)

    async def _close(self) -> None:
        servers, self._servers = self._servers, []
        await asyncio.gather(*(server.close() for server in servers))
