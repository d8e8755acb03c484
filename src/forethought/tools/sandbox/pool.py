"""Several fork servers as one: shares out calls, and decides who is to blame when one fails.

Whatever a program can bring about is an outcome of that program. Infrastructure is blamed only
where no program had a hand in it: before the program began.

A host that is short of memory ends programs first, and not always the one that took it. So a
program that was killed while the kernel ended processes for want of memory runs once more, alone.
If that happens to it again it is out of memory, within its own limit or not: how much it takes is
its own doing, and were infrastructure blamed, taking much would spare an attempt its verdict.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import Self

from forethought.core.errors import SandboxError
from forethought.tools.host_memory import free_memory, processes_ended
from forethought.tools.sandbox.breaker import Advice, Breaker
from forethought.tools.sandbox.fleet import Fleet, ForkServer, Health, StartServer
from forethought.tools.sandbox.inside.frames import End, Report, State
from forethought.tools.sandbox.outcome import SHORT_OF_MEMORY, Kind, Outcome, judge, killed_unasked
from forethought.tools.sandbox.server import ServerDiedError, start_server
from forethought.tools.sandbox.turnstile import BusyError, Turnstile
from forethought.tools.sandbox.usage import INFRASTRUCTURE, Usage
from forethought.tools.settings import PythonSettings

_ATTEMPTS = 3


def most_aside(settings: PythonSettings, available: int) -> int:
    """How many long calls may go on beside those that have a place.

    No more than `available` bytes have room for, should every call take all that it may.

    >>> most_aside(PythonSettings(servers=1, memory_mb=1024), 8 * 2**30)
    4
    """
    places = settings.servers * settings.calls_per_server
    room = available // (settings.memory_mb * 2**20) - places
    return max(0, min(settings.servers * settings.long_calls_per_server, room))


@dataclass(slots=True)
class Session:
    """One attempt's interpreter: on which server it lives, once a program has run in it.

    `fresh`: no variables can be lost, since none were made or their loss has been told. Its
    programs run one after another, each with `turn` held.
    """

    number: int
    server: ForkServer | None = None
    fresh: bool = True
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Pool:
    """Runs programs on the least busy server; used as an async context.

    `counts` has every kind of outcome so far, and what infrastructure failed. `evictions` says how
    many processes the kernel has ended for want of memory.
    """

    def __init__(
        self,
        settings: PythonSettings,
        start: StartServer = start_server,
        health: Health | None = None,
        evictions: Callable[[], int] = processes_ended,
    ) -> None:
        self.counts = Counter[str]()
        self._queued = 0.0
        self._evictions = evictions
        self._settings = settings
        self._fleet = Fleet(settings, start, health or Health())
        self._line = Turnstile(
            room=settings.servers * settings.calls_per_server,
            queue=settings.queue,
            aside=most_aside(settings, free_memory()),
        )
        self._breaker = Breaker()
        self._quarantine = asyncio.Lock()
        self._numbers = count(1)
        self._sessions = dict[int, Session]()

    @property
    def replaced(self) -> Counter[str]:
        """Servers that were replaced, by why: `dead`, `wedged` (it did not answer), `rebuilt`."""
        return self._fleet.replaced

    @property
    def usage(self) -> Usage:
        """All that it did so far."""
        return Usage(ended=dict(self.counts), replaced=dict(self.replaced), queued=self._queued)

    @property
    def sessions(self) -> frozenset[int]:
        """The numbers of the sessions that have an interpreter."""
        return frozenset(self._sessions)

    async def __aenter__(self) -> Self:
        await self._fleet.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._fleet.close()

    def open_session(self) -> Session:
        """Begin a session. It costs nothing until its first program."""
        return Session(next(self._numbers))

    def close_session(self, session: Session) -> None:
        """Let go of a session and of its interpreter."""
        if self._sessions.pop(session.number, None) and session.server is not None:
            session.server.end_session(session.number)

    async def run(self, code: str, stdin: str = "", session: Session | None = None) -> Outcome:
        """Run one program, in line behind others if need be.

        Raises `BusyError` when the line or the table of sessions is full, another `SandboxError`
        when no server could even begin it, and `RecipeError` when that happens too often. A
        program whose server dies under it, or that the host may have ended for want of memory, runs
        once more, alone: if that happens again, the program is to blame.
        """
        if not self._fleet.servers:
            raise RuntimeError("the sandbox is not open: enter it with `async with` first")
        asked = time.monotonic()
        try:
            # A session's later programs wait outside of the line, where they take nobody's place.
            async with _turn(session), self._line.inside():
                outcome = await self._run(code.encode(), stdin.encode(), session)
        except BusyError:
            self.counts[INFRASTRUCTURE] += 1
            raise
        except SandboxError:
            self.counts[INFRASTRUCTURE] += 1
            if self._breaker.note(failed=True) is Advice.REBUILD:
                async with self._line.shut():
                    await self._fleet.rebuild()
            raise
        self.counts[outcome.kind] += 1
        self._breaker.note(failed=False)
        queued = max(0.0, time.monotonic() - asked - outcome.seconds)
        self._queued += queued
        return replace(outcome, queued=queued)

    async def _run(self, code: bytes, stdin: bytes, session: Session | None) -> Outcome:
        if session is not None:
            return await self._run_in_session(code, session)
        failure = "no server"
        for attempt in range(_ATTEMPTS):
            server = await self._fleet.choose(attempt)
            try:
                report, evicted = await self._try(server, code, stdin)
            except ServerDiedError:
                return await self._run_alone(code, stdin)
            if evicted:
                return await self._run_alone(code, stdin)
            if report.end is not End.SETUP:
                return judge(report, self._settings.cpu_seconds)
            failure = _reason(report)
        raise SandboxError(f"no server could start a program: {failure}")

    async def _try(
        self, server: ForkServer, code: bytes, stdin: bytes = b"", session: int = 0
    ) -> tuple[Report, bool]:
        """What a server says, and whether the host may have ended the program."""
        before = self._evictions()
        report = await server.run(code, stdin, session)
        killed = killed_unasked(report, None if session else self._settings.cpu_seconds)
        return report, killed and self._evictions() > before

    async def _run_alone(self, code: bytes, stdin: bytes) -> Outcome:
        async with self._quarantine:
            server = await self._fleet.start_another()
            try:
                report, evicted = await self._try(server, code, stdin)
            except ServerDiedError:
                return Outcome(kind=Kind.CRASH, detail="a fault that ended its server")
            finally:
                await asyncio.shield(server.close())
        if report.end is End.SETUP:
            raise SandboxError(_reason(report))
        outcome = judge(report, self._settings.cpu_seconds)
        return replace(outcome, kind=Kind.MEMORY, detail=SHORT_OF_MEMORY) if evicted else outcome

    async def _run_in_session(self, code: bytes, session: Session) -> Outcome:
        """In the session's own interpreter; in a new one, and said so, where that is gone."""
        self._admit(session)
        had_state = not session.fresh
        for attempt in range(_ATTEMPTS):
            if session.server is None or not session.server.alive:
                session.server = await self._fleet.choose(attempt)
            try:
                report, evicted = await self._try(session.server, code, session=session.number)
            except ServerDiedError:
                return await self._run_outside(code, session)
            if evicted:
                return await self._run_outside(code, session)
            if report.end is not End.SETUP:
                return self._judge_cell(report, session, had_state=had_state)
            session.server = None
        raise SandboxError("no server could start a session")

    async def _run_outside(self, code: bytes, session: Session) -> Outcome:
        """Alone, once its session is gone, whose other programs cannot be run again.

        Nor does what it defines there outlast it: the next program is told so.
        """
        session.server, session.fresh = None, False
        return replace(await self._run_alone(code, b""), state_lost=True)

    def _admit(self, session: Session) -> None:
        most = self._settings.max_sessions
        if session.number not in self._sessions and len(self._sessions) >= most:
            raise BusyError(
                f"busy: {most} sessions of the Python tool are open: attempt fewer problems at "
                "once, or raise tool.max_sessions"
            )
        self._sessions[session.number] = session

    def _judge_cell(self, report: Report, session: Session, *, had_state: bool) -> Outcome:
        outcome = judge(report, None)
        lost_before = had_state and State.FRESH in report.state
        session.fresh = outcome.state_lost
        return replace(outcome, state_lost=outcome.state_lost or lost_before)


def _turn(session: Session | None) -> AbstractAsyncContextManager[object]:
    return nullcontext() if session is None else session.turn


def _reason(report: Report) -> str:
    return report.err.decode("utf-8", "replace")
