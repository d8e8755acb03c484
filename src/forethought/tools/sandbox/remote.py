"""The tier `remote`: programs run on a service elsewhere, such as SandboxFusion.

Source of the messages: the `/run_code` endpoint of SandboxFusion's documentation. How far the
service keeps programs apart is its own affair; memory and processor limits are, too.
"""

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from urllib.error import HTTPError, URLError

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.pool import Session
from forethought.tools.sandbox.turnstile import Turnstile
from forethought.tools.settings import PythonSettings

_ATTEMPTS = 3
_GRACE_SECONDS = 30.0
_MOST_BYTES = 64 << 20

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


class Service:
    """Runs programs by HTTP, so many at once as the settings' servers would."""

    def __init__(self, settings: PythonSettings) -> None:
        if not settings.url:
            raise RecipeError(
                'tool.tier="remote" needs tool.url: the address of a service up to and without '
                "/run_code"
            )
        room = settings.servers * settings.calls_per_server
        self._settings = settings
        self._url = f"{settings.url.rstrip('/')}/run_code"
        self._line = Turnstile(room, settings.queue)
        self._threads = ThreadPoolExecutor(room, thread_name_prefix="remote-tool")

    async def __aexit__(self, kind: None, error: None, trace: None) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def open_session(self) -> Session:
        """Raises `RecipeError`: the service knows no sessions."""
        raise RecipeError('tool.state="session" needs fork servers: not with tool.tier="remote"')

    def close_session(self, session: Session) -> None:
        """Nothing to close."""

    async def run(self, code: str, stdin: str = "", session: Session | None = None) -> Outcome:
        """Run one program. Raises `SandboxError` when the service fails three times."""
        body = json.dumps(
            {
                "code": _HARNESS.format(source=code),
                "language": "python",
                "run_timeout": self._settings.wall_seconds,
                "memory_limit_MB": self._settings.memory_mb,
                "stdin": stdin,
            }
        ).encode()
        failure = ""
        async with self._line.inside():
            for _ in range(_ATTEMPTS):
                try:
                    loop = asyncio.get_running_loop()
                    answer = await loop.run_in_executor(self._threads, self._post, body)
                    return _judge(answer)
                except SandboxError as error:
                    failure = str(error)
        raise SandboxError(failure)

    def _post(self, body: bytes) -> Mapping[str, Any]:
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        try:
            seconds = self._settings.wall_seconds + _GRACE_SECONDS
            with urllib.request.urlopen(request, timeout=seconds) as reply:
                answer: object = json.loads(reply.read(_MOST_BYTES))
        except (HTTPError, URLError, OSError, ValueError) as error:
            raise SandboxError(f"{self._url}: {error}: is the service well?") from error
        if not isinstance(answer, dict):
            raise SandboxError(f"{self._url} answered with {type(answer).__name__}, not an object")
        return cast("Mapping[str, Any]", answer)


def _judge(answer: Mapping[str, Any]) -> Outcome:
    """An outcome, by what the service says of the process; `SandboxError` if it says nothing."""
    result = answer.get("run_result")
    if answer.get("status") == "SandboxError" or not isinstance(result, dict):
        raise SandboxError(f"the service could not run it: {answer.get('message', answer)}")
    run = cast("Mapping[str, Any]", result)
    out, err = (
        str(run.get(name) or "").encode("utf-8", "replace") for name in ("stdout", "stderr")
    )
    code = run.get("return_code")
    return Outcome(
        kind=_kind(str(run.get("status")), code, err),
        detail=str(code),
        out=out,
        err=err,
        out_bytes=len(out),
        err_bytes=len(err),
        seconds=float(run.get("execution_time") or 0.0),
    )


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
