"""Tools whose calls block, run in threads so that nothing else waits for them.

Does not cover tools with a memory of their own within an attempt (`StatefulTools`).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from threading import Thread
from typing import Protocol

from forethought.core.errors import ForethoughtError, RecipeError, SandboxError, boundary
from forethought.core.messages import ToolCall, ToolReply, ToolSpec


class BlockingTools(Protocol):
    """A set of tools that know no event loop. Several threads call them at once."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools."""
        ...

    def call(self, call: ToolCall) -> ToolReply:
        """Run one call, however long that takes; replies and raises as `Tools.call` does."""
        ...


class InThreads:
    """Blocking tools as `Tools` of one event loop: at most `at_once` calls run, more wait in line.

    What a call raises rises in the attempt that made it. A thread cannot be ended: a call that is
    cancelled in line is never begun, but one that runs goes on and keeps its place until it
    returns; nobody hears what it came to. No thread keeps the process from ending.
    """

    def __init__(self, tools: BlockingTools, at_once: int) -> None:
        if at_once < 1:
            raise RecipeError(f"at_once = {at_once}: set it to 1 or more")
        self._tools = tools
        self._places = asyncio.Semaphore(at_once)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools."""
        return self._tools.specs

    async def call(self, call: ToolCall) -> ToolReply:
        """Run one call in a thread, once there is a place. Raises as `Tools.call` does."""
        answer: asyncio.Future[ToolReply] = asyncio.get_running_loop().create_future()
        work = partial(copy_context().run, self._work, call, answer)
        await self._places.acquire()
        try:
            Thread(target=work, name=f"tool {call.name}", daemon=True).start()
        except RuntimeError:  # the system allows no more threads
            self._places.release()
            raise
        return await answer

    def _work(self, call: ToolCall, answer: asyncio.Future[ToolReply]) -> None:
        settle: Callable[[], object] = answer.cancel
        try:
            settle = partial(answer.set_result, _reply(self._tools, call))
        except ForethoughtError as error:
            settle = partial(answer.set_exception, error)
        finally:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                answer.get_loop().call_soon_threadsafe(self._leave, answer, settle)

    def _leave(self, answer: asyncio.Future[ToolReply], settle: Callable[[], object]) -> None:
        self._places.release()
        if not answer.done():  # or it was cancelled
            settle()


def _reply(tools: BlockingTools, call: ToolCall) -> ToolReply:
    with boundary(SandboxError, f"tool {call.name}"):
        try:
            return tools.call(call)
        except SystemExit as error:
            raise RuntimeError(f"it would end the program (sys.exit({error.code}))") from error
