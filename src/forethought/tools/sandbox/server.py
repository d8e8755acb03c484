"""One fork server, as seen from the tool: starts it, sends it programs, notices its death."""

import asyncio
import os
import socket
import subprocess
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.inside.clock import PATIENCE
from forethought.tools.sandbox.inside.frames import Ask, End, Report, Request, take_report
from forethought.tools.sandbox.inside.limits import Limits
from forethought.tools.sandbox.interpreter import find_interpreter, hidden_folders
from forethought.tools.settings import PythonSettings

_START_SECONDS = 60.0
_GRACE_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_FOLDER = Path(__file__).parent

BOOT = (
    "import sys; folder, *known = sys.stdin.read().splitlines(); sys.path.append(folder); "
    "from inside.supervisor import main; sys.path.pop(); main(*known)"
)
"""Starts a server. What it must know comes in by its standard input, since the programs that it
forks can read its command line: the sandbox's folder, its end of the wire, its parent, limits."""

# Hashes are fixed, so that the same program prints the same set in every run; `-I` would ignore
# that, hence its parts. Nothing else of the environment gets in.
_OPTIONS = ("-P", "-s", "-S", "-c", BOOT)
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    # A fork server must have one thread, and threads of libraries would count as processes.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MPLBACKEND": "Agg",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a server's process is started: by which command, with the sandbox from which folder.

    `command` goes before the interpreter; one that takes rights away shows what is left to do.

    >>> Launch(command=("nice",)).command
    ('nice',)
    """

    command: tuple[str, ...] = ()
    folder: Path = _FOLDER


class ServerDiedError(SandboxError):
    """The server ended, or stopped answering, while a call was with it."""


class Server(asyncio.Protocol):
    """A running fork server. Made by `start_server`; must be closed."""

    def __init__(self, process: subprocess.Popen[bytes], answer_seconds: float) -> None:
        self._alive = True
        self._wedged = False
        self._process = process
        self._answer_seconds = answer_seconds
        self._transport: asyncio.WriteTransport | None = None
        self._last_words = ""
        self._buffer = bytearray()
        self._numbers = count(1)
        self._pending = dict[int, asyncio.Future[Report]]()

    @property
    def alive(self) -> bool:
        """Whether it may be given calls."""
        return self._alive

    @property
    def wedged(self) -> bool:
        """Whether it was ended because it did not answer."""
        return self._wedged

    @property
    def load(self) -> int:
        """How many calls it has."""
        return len(self._pending)

    async def run(self, code: bytes, stdin: bytes = b"", session: int = 0) -> Report:
        """Run one program. Raises `ServerDiedError`; cancelling ends the program."""
        number = next(self._numbers)
        request = Request(Ask.RUN, number, session, code, stdin)
        try:
            return await self._answer(number, request, self._answer_seconds)
        except asyncio.CancelledError:
            self._send(Request(Ask.CANCEL, number))
            raise

    async def answers(self, seconds: float) -> bool:
        """Whether supervisor and zygote do anything at all; if not, the server is ended."""
        number = next(self._numbers)
        try:
            await self._answer(number, Request(Ask.PING, number), seconds)
        except ServerDiedError:
            return False
        return True

    def end_session(self, session: int) -> None:
        """Let go of a session's interpreter."""
        self._send(Request(Ask.CLOSE, 0, session))

    async def settle(self) -> None:
        """Wait until it can run programs. Raises `SandboxError` with the server's own reason."""
        report = await self._answer(0, None, _START_SECONDS)
        if report.end is not End.READY:
            raise SandboxError(report.err.decode("utf-8", "replace") or "it ended without a word")

    async def close(self) -> None:
        """End the server with everything in it, and wait until it is gone."""
        if self._transport is not None:
            self._transport.close()
        try:
            for _ in range(round(_CLOSE_SECONDS / 0.005)):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(0.005)
        finally:
            self._process.kill()
            self._process.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop once the wire is open."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: hand reports to whoever waits for them."""
        self._buffer += data
        while (report := take_report(self._buffer)) is not None:
            future = self._pending.pop(report.call, None)
            if future is None and report.call == 0:
                self._last_words = f": {report.err.decode('utf-8', 'replace')}"
            elif future is not None and not future.done():
                future.set_result(report)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop when the server closed its end: no call will be answered."""
        self._give_up(f"the fork server ended{self._last_words}")

    async def _answer(self, number: int, request: Request | None, seconds: float) -> Report:
        loop = asyncio.get_running_loop()
        if not self._alive:
            raise ServerDiedError("the fork server has ended")
        future = self._pending[number] = loop.create_future()
        # Not a timeout around the wait: after a stall of the event loop, what has arrived
        # meanwhile is read before this is asked.
        alarm = loop.call_later(seconds, self._end_stuck, seconds)
        try:
            if request is not None:
                self._send(request)
            return await future
        finally:
            alarm.cancel()
            self._pending.pop(number, None)

    def _send(self, request: Request) -> None:
        if self._transport is not None and self._alive:
            self._transport.write(request.pack())

    def _end_stuck(self, seconds: float) -> None:
        self._wedged = self._wedged or self._alive
        self._process.kill()
        self._give_up(f"no answer within {seconds:g} s")

    def _give_up(self, reason: str) -> None:
        self._alive = False
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ServerDiedError(reason))


async def start_server(settings: PythonSettings, launch: Launch | None = None) -> Server:
    """Start a server and wait until it is ready; of one that does not start, nothing is left.

    Raises `SandboxError` with the server's own reason, or `OSError` where the host is short of
    processes, descriptors or memory. The kernel ends the server with the thread that started it,
    which is the event loop's.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = _launch(theirs.fileno(), settings, launch or Launch())
    except BaseException:
        ours.close()
        raise
    server = Server(process, settings.wall_seconds * PATIENCE + _GRACE_SECONDS)
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: server, sock=ours)
        await server.settle()
    except BaseException:
        await asyncio.shield(server.close())
        raise
    return server


def _launch(wire: int, settings: PythonSettings, launch: Launch) -> subprocess.Popen[bytes]:
    interpreter = find_interpreter(settings)
    limits = Limits(
        tier=settings.tier,
        wall_seconds=settings.wall_seconds,
        cpu_seconds=settings.cpu_seconds,
        memory_mb=settings.memory_mb,
        processes=settings.processes,
        idle_seconds=settings.session_idle_seconds,
        preload=settings.preload,
        packages=interpreter.packages,
        hidden=hidden_folders(interpreter),
    )
    process = subprocess.Popen(
        (*launch.command, interpreter.executable, *_OPTIONS),
        env=_ENVIRONMENT,
        pass_fds=(wire,),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None
    lines = (str(launch.folder), str(wire), str(os.getpid()), limits.to_json())
    try:
        with process.stdin as known:
            known.write("\n".join(lines).encode())
    except OSError:  # it has ended already
        process.kill()
        process.wait()
        raise
    return process
