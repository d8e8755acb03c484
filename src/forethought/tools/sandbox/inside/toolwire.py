"""The supervisor's end of the wire to the tool: whole requests in, reports out, never waiting."""

import select
import socket
from collections.abc import Iterator

from .frames import Report, Request, take_request


class ToolWire:
    """Reads and writes as far as the socket allows at the moment."""

    def __init__(self, tool: socket.socket, poll: select.poll) -> None:
        self.open = True
        self._tool = tool
        self._poll = poll
        self._inbox = bytearray()
        self._outbox = bytearray()
        tool.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._tool.fileno()

    def read(self) -> Iterator[Request]:
        """Whatever requests are complete now; `open` turns false at the tool's end."""
        try:
            data = self._tool.recv(1 << 20)
        except ConnectionResetError:  # it died with reports unread
            data = b""
        self.open = bool(data)
        self._inbox += data
        while (request := take_request(self._inbox)) is not None:
            yield request

    def say(self, report: Report) -> None:
        """Put a report in line."""
        self._outbox += report.pack()

    def flush(self) -> None:
        """Send what can be sent, and be woken when more can."""
        try:
            if self._outbox and self.open:
                del self._outbox[: self._tool.send(self._outbox)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self.open = False
        events = select.POLLIN | (select.POLLOUT if self._outbox else 0)
        self._poll.modify(self._tool, events)
