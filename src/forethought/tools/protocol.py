"""What an agent may call."""

from typing import Protocol

from forethought.core.messages import ToolCall, ToolReply, ToolSpec


class Tools(Protocol):
    """A set of tools. Opened before use and closed after, so that no process is left behind."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of the tools."""
        ...

    async def call(self, call: ToolCall) -> ToolReply:
        """Run one call. A wrong call is a reply that says so.

        Raises `SandboxError` only when infrastructure broke, on evidence that no program can
        forge: the episode is then *not measured*.
        """
        ...
