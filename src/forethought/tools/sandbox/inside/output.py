"""What a program wrote to one stream: counted in full, kept at both ends."""

from .frames import HALF


class Capture:
    """The head and the tail of a stream, 32 KB each, and how much there was."""

    def __init__(self) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take in the next bytes."""
        self.total += len(data)
        room = HALF - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * HALF:
            del self._tail[:-HALF]

    @property
    def kept(self) -> bytes:
        """Everything, or the first and the last 32 KB."""
        return bytes(self._head + self._tail[-HALF:])
