"""The Python tool: a program in, what it printed out."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Self

from forethought.core.excerpt import cut
from forethought.core.messages import ToolCall, ToolReply, ToolSpec, ToolStatus
from forethought.tools.arguments import ArgumentError, read_code
from forethought.tools.protocol import Tools
from forethought.tools.sandbox.fleet import StartServer
from forethought.tools.sandbox.interpreter import find_interpreter
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.pool import Session
from forethought.tools.sandbox.server import start_server
from forethought.tools.sandbox.tiers import Opened, open_backend
from forethought.tools.sandbox.usage import Usage
from forethought.tools.sandbox.wording import worded
from forethought.tools.settings import PythonSettings

_LOG = logging.getLogger("forethought.tools")
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program."}},
    "required": ["code"],
    "additionalProperties": False,
}
_STATUSES = {
    Kind.OK: ToolStatus.OK,
    Kind.ERROR: ToolStatus.MODEL_ERROR,
    Kind.SYNTAX: ToolStatus.MODEL_ERROR,
    Kind.REJECTED: ToolStatus.MODEL_ERROR,
    Kind.CRASH: ToolStatus.MODEL_ERROR,
    Kind.DISK: ToolStatus.MODEL_ERROR,
    Kind.TIMEOUT: ToolStatus.TIMEOUT,
    Kind.CPU: ToolStatus.TIMEOUT,
    Kind.MEMORY: ToolStatus.MEMORY,
    Kind.OUTPUT: ToolStatus.TRUNCATED,
}


def python_spec(settings: PythonSettings) -> ToolSpec:
    """What a model is told of the tool with these settings."""
    calls = (
        "Every call starts afresh."
        if settings.state == "stateless"
        else "Variables are kept from call to call."
    )
    there = (
        "Only the standard library is there, and no network."
        if not settings.python
        else "There is no network."
    )
    return ToolSpec(
        name="python",
        description=(
            "Run a Python program and read what it prints, with the value of its last "
            f"expression. {calls} {there}"
        ),
        parameters=_PARAMETERS,
    )


PYTHON = python_spec(PythonSettings())
"""The same with settings as they are by default."""


class PythonTool:
    """Runs programs in a sandbox that has been attacked before it is trusted.

    In the tiers `remote` and `none` nothing is attacked.
    Entering raises `RecipeError` where the host does not allow the isolation asked for, or
    where one of the attacks succeeded. `start` starts a fork server.
    """

    def __init__(self, settings: PythonSettings, start: StartServer = start_server) -> None:
        self._settings = settings
        self._start = start
        self._opened: Opened | None = None
        self._attacks = Usage()
        self._names: Mapping[str, str] = {}

    async def __aenter__(self) -> Self:
        self._names = find_interpreter(self._settings).names
        self._opened = await open_backend(self._settings, self._start)
        self._attacks = self._opened.backend.usage
        _say_once(self._opened.sentence, lower=bool(self._opened.refused))
        if self._opened.tier == "none":
            _say("The Python tool's programs run WITHOUT ANY ISOLATION (tool.tier='none').")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.backend.__aexit__(None, None, None)

    @property
    def opened(self) -> Opened:
        """The backend that runs programs, and its tier."""
        if self._opened is None:
            raise RuntimeError("the Python tool is not open: enter it with `async with` first")
        return self._opened

    @property
    def usage(self) -> Usage:
        """What its sandbox did since it was opened, without the attacks on itself."""
        return self.opened.backend.usage.since(self._attacks)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told: one tool, `python`, that takes `code`."""
        return (python_spec(self._settings),)

    @asynccontextmanager
    async def attempt(self) -> AsyncGenerator[Tools]:
        """The tool for one attempt: with variables of its own, if `tool.state` is `session`."""
        if self._settings.state == "stateless":
            yield self
            return
        backend = self.opened.backend
        session = backend.open_session()
        try:
            yield _InSession(self, session)
        finally:
            backend.close_session(session)

    async def call(self, call: ToolCall) -> ToolReply:
        """Run one program. Raises `SandboxError` only when no server could begin it."""
        return await self.call_in(call, None)

    async def call_in(self, call: ToolCall, session: Session | None) -> ToolReply:
        """The same in a session, if there is one."""
        outcome = await self._outcome(call, session)
        return ToolReply(
            call_id=call.id,
            name=call.name,
            text=worded(outcome, self._settings, self._names),
            status=_STATUSES[outcome.kind],
            seconds=outcome.seconds,
        )

    async def _outcome(self, call: ToolCall, session: Session | None) -> Outcome:
        if call.fault:
            return Outcome(kind=Kind.REJECTED, detail=call.fault)
        if call.name != PYTHON.name:
            known = f"There is no tool {cut(call.name, 100)!r}, only {PYTHON.name!r}."
            return Outcome(kind=Kind.REJECTED, detail=known)
        try:
            code = read_code(call.arguments)
        except ArgumentError as error:
            return Outcome(kind=Kind.REJECTED, detail=str(error))
        return await self.opened.backend.run(code, session=session)


@dataclass(frozen=True, slots=True)
class _InSession:
    """The tool within one attempt's session."""

    tool: PythonTool
    session: Session

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.tool.specs

    async def call(self, call: ToolCall) -> ToolReply:
        return await self.tool.call_in(call, self.session)


@cache
def _say_once(sentence: str, *, lower: bool) -> None:
    _LOG.log(logging.WARNING if lower else logging.INFO, sentence)


def _say(sentence: str) -> None:
    _LOG.warning(sentence)
