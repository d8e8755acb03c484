"""The tier `remote`: programs run on a service elsewhere, such as SandboxFusion.

Source of the messages: the `/run_code` endpoint of SandboxFusion's documentation. How far the
service keeps programs apart is its own affair; memory and processor limits are, too.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from httpx2 import AsyncClient, ConnectError, ConnectTimeout, Limits, Response, Timeout

from forethought.core.errors import RecipeError, SandboxError, boundary
from forethought.core.excerpt import cut
from forethought.tools.sandbox.breaker import Breaker
from forethought.tools.sandbox.inside.output import Capture
from forethought.tools.sandbox.inside.places import FLOOD
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.pool import Session
from forethought.tools.sandbox.turnstile import BusyError, Turnstile
from forethought.tools.sandbox.usage import INFRASTRUCTURE, Usage
from forethought.tools.settings import PythonSettings

_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the times that something is sent, more or less."""
_LONGEST_PAUSE = 30.0
_ENOUGH = 3
"""Times that a program fails a service that is well until it is to blame."""
_TURNS_AWAY = (429, 503)
_GRACE_SECONDS = 30.0
_CONNECT_SECONDS = 5.0
_MOST_BYTES = 4 * FLOOD
_LONGEST_SHOWN = 300

# The value of a last expression is shown as in the other tiers; the program itself stays as it is.
_HARNESS = """
import ast as _ast, builtins as _b, linecache as _l, sys as _s, types as _t
def _run(source, name="main.py"):
    _l.cache[name] = (len(source), None, source.splitlines(True), name)
    tree = _ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    main = _t.ModuleType("__main__")
    main.__dict__["__builtins__"] = _b
    _s.modules["__main__"] = main
    exec(compile(tree, name, "exec", dont_inherit=True), main.__dict__)
    if last is not None:
        shown = _ast.Interactive(body=[last])
        exec(compile(shown, name, "single", dont_inherit=True), main.__dict__)
_run({source!r})
"""


class _TurnedAwayError(SandboxError):
    """The service has not taken the program, which therefore has no part in it."""

    def __init__(self, url: str, why: str, wait: float = 0.0) -> None:
        super().__init__(f"{url} takes no program (is the service well?): {why}")
        self.wait = wait


class Service:
    """Runs programs by HTTP, so many at once as the settings' servers would.

    `rest` waits for so many seconds before a program is sent again.
    """

    def __init__(
        self, settings: PythonSettings, rest: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._settings = settings
        self._rest = rest
        self._url = f"{settings.url.rstrip('/')}/run_code"
        self._line = Turnstile(settings.servers * settings.calls_per_server, settings.queue)
        self._breaker = Breaker(f"which were sent to {self._url}: is the service well?")
        # A connection for each program: none is found closed by a service that began anew.
        self._client = AsyncClient(
            timeout=Timeout(None, connect=_CONNECT_SECONDS),
            limits=Limits(max_keepalive_connections=0),
        )
        self._counts = Counter[str]()
        self._queued = 0.0

    @property
    def address(self) -> str:
        """Where it is, as the recipe says it."""
        return self._settings.url

    @property
    def usage(self) -> Usage:
        """All that was asked of the service so far; it has no servers that could be replaced."""
        return Usage(ended=dict(self._counts), queued=self._queued)

    async def __aexit__(self, kind: None, error: None, trace: None) -> None:
        """Let go of what connections there are."""
        await self._client.aclose()

    def open_session(self) -> Session:
        """Raises `RecipeError`: the service knows no sessions."""
        raise RecipeError('tool.state="session" needs fork servers: not with tool.tier="remote"')

    def close_session(self, session: Session) -> None:
        """Nothing to close."""

    async def run(self, code: str, stdin: str = "", session: Session | None = None) -> Outcome:
        """Run one program; cancelling closes its connection at once.

        A program that fails the service three times, while it runs another after a pause each time,
        is to blame. That the service is overloaded or not there says nothing of the program.
        Raises `BusyError` when the line is full, another `SandboxError` when the service runs no
        program for some seconds, and `RecipeError` when that happens too often.
        """
        asked = time.monotonic()
        try:
            async with self._line.inside():
                outcome = await self._run(code, stdin)
        except SandboxError as error:
            self._counts[INFRASTRUCTURE] += 1
            if not isinstance(error, BusyError):
                self._breaker.note(failed=True)
            raise
        self._counts[outcome.kind] += 1
        self._breaker.note(failed=False)
        queued = max(0.0, time.monotonic() - asked - outcome.seconds)
        self._queued += queued
        return replace(outcome, queued=queued)

    async def _run(self, code: str, stdin: str) -> Outcome:
        blamed, suspect, well, pauses = 0, False, True, list(_PAUSES)
        while True:
            wait = 0.0
            try:
                if suspect:
                    well, suspect = await self._is_well(), False
                    blamed += 1
                if well and blamed == _ENOUGH:
                    return Outcome(
                        kind=Kind.CRASH, detail="a fault that its service could not bear"
                    )
                return await self._try(code, stdin)
            except _TurnedAwayError as error:
                failure, wait = error, error.wait
            except SandboxError as error:
                failure, suspect = error, well
            if not pauses:
                raise failure
            # Not all at once: whoever was turned away together does not come back together.
            await self._rest(max(wait, pauses.pop(0) * random.uniform(0.5, 1.5)))

    async def _is_well(self) -> bool:
        """Whether the service runs another program. Raises `_TurnedAwayError` if it takes none."""
        try:
            return (await self._try("6 * 7")).kind is Kind.OK
        except _TurnedAwayError:
            raise
        except SandboxError:
            return False

    async def _try(self, code: str, stdin: str = "") -> Outcome:
        """What became of the program. Raises `SandboxError`."""
        asked = {
            "code": _HARNESS.format(source=code),
            "language": "python",
            "run_timeout": self._settings.wall_seconds,
            "memory_limit_MB": self._settings.memory_mb,
            "stdin": stdin,
        }
        with boundary(SandboxError, f"{self._url} gave no answer (is the service well?)"):
            async with asyncio.timeout(self._settings.wall_seconds + _GRACE_SECONDS):
                try:
                    answer = await self._post(asked)
                except (ConnectError, ConnectTimeout) as error:
                    raise _TurnedAwayError(self._url, str(error) or "no connection") from error
            return _judge(answer)

    async def _post(self, asked: Mapping[str, object]) -> bytes:
        """The body of the answer, as far as it is read: of more than may be, the beginning."""
        body = bytearray()
        content = json.dumps(asked).encode()
        kind = {"Content-Type": "application/json"}
        async with self._client.stream("POST", self._url, content=content, headers=kind) as reply:
            if reply.status_code in _TURNS_AWAY:
                why = f"{reply.status_code} {reply.reason_phrase}"
                raise _TurnedAwayError(self._url, why, _asked_pause(reply))
            reply.raise_for_status()
            async for data in reply.aiter_bytes():
                body += data
                if len(body) > _MOST_BYTES:
                    break
        return bytes(body)


def _asked_pause(reply: Response) -> float:
    """Seconds that the service asks to wait; 0 where it names none, or a date."""
    said = reply.headers.get("Retry-After", "")
    return min(float(said), _LONGEST_PAUSE) if said.isdecimal() else 0.0


def _judge(body: bytes) -> Outcome:
    """An outcome, by what the service says of the process; `SandboxError` if it says nothing."""
    if len(body) > _MOST_BYTES:
        return Outcome(kind=Kind.OUTPUT, out_bytes=len(body))
    answer: object = json.loads(body)
    if not isinstance(answer, dict):
        raise SandboxError(f"the service answered with {type(answer).__name__}, not an object")
    said = cast("Mapping[str, Any]", answer)
    result = said.get("run_result")
    if said.get("status") == "SandboxError" or not isinstance(result, dict):
        why = cut(str(said.get("message", said)), _LONGEST_SHOWN)
        raise SandboxError(f"the service could not run it: {why}")
    run = cast("Mapping[str, Any]", result)
    out, err = _captured(run.get("stdout")), _captured(run.get("stderr"))
    code = run.get("return_code")
    kind = _kind(str(run.get("status")), code, err.kept)
    return Outcome(
        kind=Kind.OUTPUT if max(out.total, err.total) > FLOOD else kind,
        detail=str(code),
        out=out.kept,
        err=err.kept,
        out_bytes=out.total,
        err_bytes=err.total,
        seconds=float(run.get("execution_time") or 0.0),
    )


def _captured(said: object) -> Capture:
    """What was written to one stream, kept at both ends as in the other tiers."""
    stream = Capture()
    stream.add(str(said or "").encode("utf-8", "replace"))
    return stream


def _kind(status: str, code: object, err: bytes) -> Kind:
    if status == "TimeLimitExceeded":
        return Kind.TIMEOUT
    if status != "Finished":
        raise SandboxError(f"the service ended the program as {status!r}")
    if code == 0:
        return Kind.OK
    if err.rstrip().endswith(b"MemoryError"):
        return Kind.MEMORY
    return Kind.CRASH if isinstance(code, int) and code < 0 else Kind.ERROR
