"""The Python tool: a program in, what it printed out."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from forethought.core.errors import RecipeError, SandboxError
from forethought.core.messages import ToolCall, ToolReply, ToolSpec, ToolStatus
from forethought.tools.arguments import ArgumentError, read_code
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.probe import check_host, probe
from forethought.tools.sandbox.wording import cut, worded
from forethought.tools.settings import PythonSettings

_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program."}},
    "required": ["code"],
    "additionalProperties": False,
}
PYTHON = ToolSpec(
    name="python",
    description=(
        "Run a Python program and read what it prints, with the value of its last expression. "
        "Every call starts afresh. Only the standard library is there, and no network."
    ),
    parameters=_PARAMETERS,
)
"""What a model is told of the tool."""
_STATUSES = {
    Kind.OK: ToolStatus.OK,
    Kind.ERROR: ToolStatus.MODEL_ERROR,
    Kind.CRASH: ToolStatus.MODEL_ERROR,
    Kind.TIMEOUT: ToolStatus.TIMEOUT,
    Kind.CPU: ToolStatus.TIMEOUT,
    Kind.MEMORY: ToolStatus.MEMORY,
    Kind.OUTPUT: ToolStatus.TRUNCATED,
}


class PythonTool:
    """Runs programs in a sandbox that has been attacked before it is trusted.

    Entering raises `RecipeError` where the host does not allow the isolation asked for, or
    where one of the attacks succeeded.
    """

    def __init__(self, settings: PythonSettings) -> None:
        self._settings = settings
        self._pool = Pool(settings)

    async def __aenter__(self) -> Self:
        check_host(self._settings)
        try:
            await self._pool.__aenter__()
        except SandboxError as error:
            raise RecipeError(_cannot_start(self._settings, error)) from error
        try:
            await probe(self._pool, self._settings)
        except BaseException:
            await self._pool.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pool.__aexit__(kind, error, trace)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told: one tool, `python`, that takes `code`."""
        return (PYTHON,)

    async def call(self, call: ToolCall) -> ToolReply:
        """Run one program. Raises `SandboxError` only when no server could begin it."""
        if call.fault:
            return _refusal(call, call.fault)
        if call.name != PYTHON.name:
            return _refusal(
                call, f"There is no tool {cut(call.name, 100)!r}, only {PYTHON.name!r}."
            )
        try:
            code = read_code(call.arguments)
        except ArgumentError as error:
            return _refusal(call, str(error))
        outcome = await self._pool.run(code)
        return ToolReply(
            call_id=call.id,
            name=call.name,
            text=worded(outcome, self._settings),
            status=_STATUSES[outcome.kind],
            seconds=outcome.seconds,
        )


def _refusal(call: ToolCall, why: str) -> ToolReply:
    return ToolReply(call_id=call.id, name=call.name, text=why, status=ToolStatus.MODEL_ERROR)


def _cannot_start(settings: PythonSettings, error: SandboxError) -> str:
    return (
        f"tool.isolation={settings.isolation!r} with tool.preload={list(settings.preload)}: the "
        f"sandbox could not start ({error}). If the host does not permit that call, allow user "
        'namespaces or run as root; on trusted problems only, tool.isolation="process" with '
        "tool.allow_weak=true does without. A module to preload must be in the standard library."
    )
