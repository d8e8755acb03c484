"""What an agent may call."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

from forethought.core.messages import ToolCall, ToolReply, ToolSpec


class Tools(Protocol):
    """A set of tools. Opened before use and closed after, so that no process is left behind."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools."""
        ...

    async def call(self, call: ToolCall) -> ToolReply:
        """Run one call. A wrong call is a reply that says so.

        It must not block: every other attempt waits with the event loop. A tool that does (it
        sleeps, computes, or asks a service with a synchronous client) is wrapped by `InThreads`.
        Calls of many attempts, and of one turn, run at the same time.

        Raises `SandboxError` only when infrastructure broke, on evidence that no program can
        forge: the episode is then *not measured*.
        """
        ...


@runtime_checkable
class StatefulTools(Tools, Protocol):
    """Tools that may remember, within one attempt, what earlier calls left."""

    def attempt(self) -> AbstractAsyncContextManager[Tools]:
        """The tools for one attempt, until it ends."""
        ...


@asynccontextmanager
async def for_attempt(tools: Tools) -> AsyncGenerator[Tools]:
    """The tools as one attempt may use them: with a memory of its own, where they have one."""
    if isinstance(tools, StatefulTools):
        async with tools.attempt() as own:
            yield own
    else:
        yield tools
