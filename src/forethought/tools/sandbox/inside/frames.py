"""The messages on the two wires: tool to supervisor (stream), supervisor to zygote (packets).

Everything here is fixed-size numbers followed by raw bytes: nothing that a program wrote is ever
parsed, on either side.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

HALF = 32 * 1024
"""Bytes kept of the head, and again of the tail, of each stream of output."""

OUT_OF_MEMORY = 121
"""The exit code of a program that a `MemoryError` ended."""

_REQUEST = Struct("<BII")
_REPORT = Struct("<IBiddQQII")


class Ask(IntEnum):
    """What the tool asks of the supervisor."""

    RUN = 1
    CANCEL = 2


class End(IntEnum):
    """Why a call is over, as the trusted side saw it. `READY` and `SETUP` end no program."""

    EXITED = 0
    TIMEOUT = 1
    MEMORY = 2
    OUTPUT = 3
    SETUP = 4
    READY = 5


class Request(NamedTuple):
    """One question of the tool: run this program, or forget that call."""

    ask: Ask
    call: int
    code: bytes = b""

    def pack(self) -> bytes:
        """The request as bytes on the wire."""
        return _REQUEST.pack(self.ask, self.call, len(self.code)) + self.code


class Report(NamedTuple):
    """How one call ended. `out` and `err` are cut to head and tail where more was written.

    `status` is the wait status of the program; `out_bytes` and `err_bytes` count all that it
    wrote. Call 0 is the server itself: `READY` once, or `SETUP` with the reason in `err`.
    """

    call: int
    end: End
    status: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    out_bytes: int = 0
    err_bytes: int = 0
    out: bytes = b""
    err: bytes = b""

    def pack(self) -> bytes:
        """The report as bytes on the wire."""
        sizes = (len(self.out), len(self.err))
        return _REPORT.pack(*self[:7], *sizes) + self.out + self.err


def take_request(buffer: bytearray) -> Request | None:
    """Remove the first whole request from the buffer; None while it is incomplete."""
    if len(buffer) < _REQUEST.size:
        return None
    ask, call, size = _REQUEST.unpack_from(buffer)
    end = _REQUEST.size + size
    if len(buffer) < end:
        return None
    request = Request(Ask(ask), call, bytes(buffer[_REQUEST.size : end]))
    del buffer[:end]
    return request


def take_report(buffer: bytearray) -> Report | None:
    """Remove the first whole report from the buffer; None while it is incomplete."""
    if len(buffer) < _REPORT.size:
        return None
    call, end, status, seconds, cpu, out_bytes, err_bytes, out, err = _REPORT.unpack_from(buffer)
    middle = _REPORT.size + out
    if len(buffer) < middle + err:
        return None
    body = (bytes(buffer[_REPORT.size : middle]), bytes(buffer[middle : middle + err]))
    del buffer[: middle + err]
    return Report(call, End(end), status, seconds, cpu, out_bytes, err_bytes, *body)


class Order(IntEnum):
    """What the supervisor orders of the zygote."""

    ARM = 1
    KILL = 2
    INSPECT = 3


ORDER = Struct("<BI")
"""An order and the place it concerns."""

NEWS = Struct("<Ii?d")
"""What the zygote tells of a place: wait status, whether memory ended it, CPU seconds."""

FAULT = b"fault: "
"""Begins the last message of a zygote or a child that could not go on; the reason follows."""
