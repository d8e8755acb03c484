"""The messages on the two wires: tool to supervisor (stream), supervisor to zygote (packets).

Everything here is fixed-size numbers followed by raw bytes: nothing that a program wrote is ever
parsed, on either side.
"""

from collections.abc import Collection
from enum import IntEnum, IntFlag
from struct import Struct, pack, unpack_from
from typing import NamedTuple

HALF = 32 * 1024
"""Bytes kept of the head, and again of the tail, of each stream of output."""

OUT_OF_MEMORY = 121
"""The exit code of a program that a `MemoryError` ended."""

BAD_SYNTAX = 122
"""The exit code of a program that could not be compiled."""

_REQUEST = Struct("<BIIII")
_REPORT = Struct("<IBBiddQQII")


class Ask(IntEnum):
    """What the tool asks of the supervisor."""

    RUN = 1
    CANCEL = 2
    CLOSE = 3
    PING = 4


class End(IntEnum):
    """Why a call is over, as the trusted side saw it. `READY` and `SETUP` end no program.

    `FORGED` is a session whose interpreter said what it cannot say.
    """

    EXITED = 0
    TIMEOUT = 1
    MEMORY = 2
    OUTPUT = 3
    SETUP = 4
    READY = 5
    DISK = 6
    FORGED = 7
    THREADS = 8


class State(IntFlag):
    """What became of a session's variables. Outside of a session, none of it."""

    KEPT = 0
    FRESH = 1
    LOST = 2


class Request(NamedTuple):
    """One question of the tool: run this program, forget that call, end that session.

    In a session (a number other than 0) programs share one interpreter; `stdin` is for programs
    outside of one.
    """

    ask: Ask
    call: int
    session: int = 0
    code: bytes = b""
    stdin: bytes = b""

    def pack(self) -> bytes:
        """The request as bytes on the wire."""
        sizes = (len(self.code), len(self.stdin))
        return _REQUEST.pack(self.ask, self.call, self.session, *sizes) + self.code + self.stdin


class Report(NamedTuple):
    """How one call ended. `out` and `err` are cut to head and tail where more was written.

    `status` is the wait status of the program; `out_bytes` and `err_bytes` count all that it
    wrote. Call 0 is the server itself: `READY` once, or `SETUP` with the reason in `err`.
    """

    call: int
    end: End
    state: State = State.KEPT
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
        return _REPORT.pack(*self[:8], *sizes) + self.out + self.err


def take_request(buffer: bytearray) -> Request | None:
    """Remove the first whole request from the buffer; None while it is incomplete."""
    if len(buffer) < _REQUEST.size:
        return None
    ask, call, session, code, stdin = _REQUEST.unpack_from(buffer)
    middle = _REQUEST.size + code
    end = middle + stdin
    if len(buffer) < end:
        return None
    body = (bytes(buffer[_REQUEST.size : middle]), bytes(buffer[middle:end]))
    request = Request(Ask(ask), call, session, *body)
    del buffer[:end]
    return request


def take_report(buffer: bytearray) -> Report | None:
    """Remove the first whole report from the buffer; None while it is incomplete."""
    if len(buffer) < _REPORT.size:
        return None
    fields = _REPORT.unpack_from(buffer)
    call, end, state, status, seconds, cpu, out_bytes, err_bytes, out, err = fields
    middle = _REPORT.size + out
    if len(buffer) < middle + err:
        return None
    body = (bytes(buffer[_REPORT.size : middle]), bytes(buffer[middle : middle + err]))
    del buffer[: middle + err]
    return Report(call, End(end), State(state), status, seconds, cpu, out_bytes, err_bytes, *body)


class Order(IntEnum):
    """What the supervisor orders of the zygote.

    `CELL` is the beginning of a session's program, and `REST` its end.
    """

    ARM = 1
    KILL = 2
    INSPECT = 3
    DEMOTE = 4
    INTERRUPT = 5
    PING = 6
    CELL = 7
    REST = 8


ORDER = Struct("<BI")
"""An order and the place it concerns; for a `PING`, the number to send back; for an `INSPECT`, how
many calls are running."""

NEWS = Struct("<IiBd")
"""What the zygote tells of a place: wait status, an `End` if it ended it, CPU seconds."""

PONG = Struct("<I")
"""What the zygote answers to a `PING`."""

_WAITING = b"waiting: "

START = Struct("<BI")
"""What a child is told: whether this is a session, and how many bytes of its script are code."""

CELL_DONE = Struct("<cB")
"""What a session's interpreter says after each program: `DONE` and an exit code."""

DONE = b"D"

FAULT = b"fault: "
"""Begins the last message of a zygote or a child that could not go on; the reason follows."""


def pack_waiting(places: Collection[int]) -> bytes:
    """What the zygote answers to an `INSPECT`: whose turn it is not.

    >>> take_waiting(pack_waiting([7, 9])), take_waiting(pack_waiting([])), take_waiting(b"else")
    ((7, 9), (), None)
    """
    return _WAITING + pack(f"<{len(places)}I", *places)


def take_waiting(news: bytes) -> tuple[int, ...] | None:
    """The places in such an answer; None if it is none."""
    if not news.startswith(_WAITING):
        return None
    count = (len(news) - len(_WAITING)) // 4
    return unpack_from(f"<{count}I", news, len(_WAITING))
