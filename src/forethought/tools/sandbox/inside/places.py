"""One child of the zygote as the supervisor sees it: its wires, its output, its clock."""

import os
import socket

from .clock import Clock
from .frames import CELL_DONE, DONE, START, End, Order, Report, Request, State
from .orders import OrderWire
from .output import Capture

_CHUNK = 1 << 16
FLOOD = 16 << 20
"""Bytes on one stream that end a program."""


class Place:
    """One child, and the call or the session it serves once it has one."""

    def __init__(self, number: int, go: socket.socket) -> None:
        self.number = number
        self.go = go
        go.setblocking(False)
        self.script = os.memfd_create("script")
        self.call = 0
        self.session = 0
        self.end = End.EXITED
        self.state = State.KEPT
        self.fault = b""
        self.interrupted = False
        self.demoted = False
        self.started = 0.0
        self.clock = Clock(0.0, 0.0)
        self.idle_since = 0.0
        self.captures = dict[int, Capture]()

    def open_streams(self) -> list[int]:
        """Make the two pipes for output; returns the ends that the child writes to."""
        writers: list[int] = []
        for _ in range(2):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            self.captures[reader] = Capture()
            writers.append(writer)
        return writers

    def begin(self, request: Request, now: float, seconds: float) -> bool:
        """Hand a program to the child; False if it is dead, or does not listen."""
        if self.session == request.session != 0:
            self.state = State.KEPT
        else:
            self.state = State.FRESH if request.session else State.KEPT
            for reader in self.captures:
                os.set_blocking(reader, False)
        self.session = request.session
        self.call = request.call
        self.end = End.EXITED
        self.interrupted = False
        self.demoted = False
        self.started = now
        self.clock = Clock(now, seconds)
        self.captures = {reader: Capture() for reader in self.captures}
        os.truncate(self.script, 0)
        os.pwrite(self.script, request.code + request.stdin, 0)
        try:
            self.go.send(START.pack(bool(request.session), len(request.code)))
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            return False
        return True

    def hear(self) -> bytes | None:
        """What its interpreter says; nothing at its end, None where it woke us with no word."""
        try:
            return self.go.recv(64)
        except BlockingIOError:  # it has sent something out of band
            return None
        except OSError:
            return b""

    def note_turn(self, now: float, *, waits: bool) -> None:
        """Whether others make it wait for its turn. To be ended takes no turns."""
        if waits and self.end is End.EXITED and not self.interrupted:
            self.clock.wait(now)
        else:
            self.clock.go_on(now)

    def drain(self, reader: int) -> bytes | None:
        """Read once: what was there, nothing at the end of the stream, None if nothing now."""
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return None
        self.captures[reader].add(data)
        return data

    def flooded(self, reader: int) -> bool:
        """Whether a stream has had more than any program may write."""
        return self.captures[reader].total > FLOOD

    def report(self, end: End, status: int, cpu: float, now: float) -> Report:
        """How the call ended, with all output that was read so far."""
        out, err = self.captures.values()
        return Report(
            self.call,
            end,
            self.state,
            status,
            now - self.started,
            cpu,
            out.total,
            err.total,
            out.kept,
            err.kept,
        )

    def close(self) -> None:
        """Let go of every descriptor."""
        for reader in self.captures:
            os.close(reader)
        os.close(self.script)
        self.go.close()


def arm(number: int, zygote: OrderWire) -> Place:
    """Have the zygote make a child, with the other ends of the wires that are the place's."""
    go, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    place = Place(number, go)
    sent = (theirs.detach(), os.dup(place.script), *place.open_streams())
    zygote.order(Order.ARM, number, sent)
    return place


def exit_code(said: bytes | None) -> int | None:
    """The code in what a session's interpreter said; None if that cannot be meant."""
    if said is None or len(said) != CELL_DONE.size:
        return None
    mark, code = CELL_DONE.unpack(said)
    return code if mark == DONE else None
