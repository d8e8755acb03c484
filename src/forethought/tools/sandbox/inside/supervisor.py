"""The supervisor: takes programs from the tool, has a zygote run them, and keeps the deadlines.

It stays outside the jail, trusts no program and is forked from nothing that a program touched.
One thread, no blocking call: pipes are drained while programs run, so that neither a flood of
output nor a stalled tool can hold up another call.
"""

import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn

from . import kernel, zygote
from .frames import FAULT, NEWS, ORDER, Ask, End, Order, Report, Request, take_request
from .jail import Namespaces
from .limits import Limits
from .output import Capture
from .plain import PlainProcess
from .walls import Walls

_ARMED = 2
_FLOOD = 16 << 20
_CHUNK = 1 << 16
_INSPECT_EVERY = 0.1
_GRACE = 10.0


class _Place:
    """One child of the zygote, and the call it serves once it has one."""

    def __init__(self, number: int, go: socket.socket, script: int) -> None:
        self.number = number
        self.go = go
        self.script = script
        self.call = 0
        self.end = End.EXITED
        self.fault = b""
        self.started = 0.0
        self.deadline = 0.0
        self.captures = dict[int, Capture]()


def supervise(tool: socket.socket, limits: Limits) -> None:
    """Serve the tool until it closes its end, or dies."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    walls: Walls = Namespaces(limits) if limits.namespaces else PlainProcess(limits)
    try:
        walls.prepare()
    except OSError as error:
        tool.send(Report(0, End.SETUP, err=str(error).encode()).pack())
        return
    child = os.fork()
    if child == 0:
        _become_zygote(theirs, limits, walls)
    theirs.close()
    try:
        _Supervisor(tool, ours, limits.wall_seconds).serve()
    finally:
        ours.close()
        os.waitpid(child, 0)
        walls.clear()


def _become_zygote(orders: socket.socket, limits: Limits, walls: Walls) -> NoReturn:
    keep = os.dup2(orders.detach(), 3, inheritable=False)
    os.closerange(keep + 1, 256)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    zygote.live(socket.socket(fileno=keep), limits, walls)


class _Supervisor:
    def __init__(self, tool: socket.socket, orders: socket.socket, wall_seconds: float) -> None:
        self._tool = tool
        self._orders = orders
        self._wall_seconds = wall_seconds
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._waiting = deque[Request]()
        self._ready = deque[_Place]()
        self._places = dict[int, _Place]()
        self._running = dict[int, _Place]()
        self._arming = 0
        self._numbers = 0
        self._open = True
        self._announced = False
        self._next_inspection = 0.0
        self._poll = select.poll()
        self._handlers = dict[int, Callable[[], object]]()
        tool.setblocking(False)
        self._watch(tool.fileno(), self._read_tool)
        self._watch(orders.fileno(), self._read_news)

    def serve(self) -> None:
        """Handle whatever comes until the tool or the zygote is gone."""
        self._arm()
        while self._open:
            for descriptor, event in self._poll.poll(self._timeout()):
                if event & ~select.POLLOUT and descriptor in self._handlers:
                    self._handlers[descriptor]()
            self._keep_time()
            self._flush()

    def _watch(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        del self._handlers[descriptor]
        self._poll.unregister(descriptor)

    # The tool's wire.

    def _read_tool(self) -> None:
        try:
            data = self._tool.recv(1 << 20)
        except ConnectionResetError:  # it died with reports unread
            data = b""
        self._open = bool(data)
        self._inbox += data
        while (request := take_request(self._inbox)) is not None:
            if request.ask is Ask.RUN:
                self._waiting.append(request)
            else:
                self._cancel(request.call)
        self._dispatch()
        self._arm()

    def _cancel(self, call: int) -> None:
        self._waiting = deque(request for request in self._waiting if request.call != call)
        if call in self._running:
            self._kill(self._running[call], End.TIMEOUT)

    def _say(self, report: Report) -> None:
        self._outbox += report.pack()

    def _flush(self) -> None:
        try:
            if self._outbox and self._open:
                del self._outbox[: self._tool.send(self._outbox)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._open = False
        events = select.POLLIN | (select.POLLOUT if self._outbox else 0)
        self._poll.modify(self._tool, events)

    # Children: armed, ready, running, over.

    def _arm(self) -> None:
        while self._arming + len(self._ready) < _ARMED:
            self._numbers += 1
            go, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            script = os.memfd_create("script")
            place = _Place(self._numbers, go, script)
            sent = [theirs.fileno(), script]
            for _ in range(2):
                reader, writer = os.pipe2(os.O_CLOEXEC)
                place.captures[reader] = Capture()
                sent.append(writer)
            socket.send_fds(self._orders, [ORDER.pack(Order.ARM, place.number)], sent)
            theirs.close()
            for writer in sent[2:]:
                os.close(writer)
            self._places[place.number] = place
            self._arming += 1
            self._watch(go.fileno(), lambda place=place: self._hear_child(place))

    def _hear_child(self, place: _Place) -> None:
        """A child is ready, or says why it is not, or ended while its jail was not closed yet."""
        self._forget(place.go.fileno())
        self._arming -= 1
        said = place.go.recv(1024)
        if said != zygote.READY:
            place.end, place.fault = End.SETUP, said.removeprefix(FAULT)
            return
        self._ready.append(place)
        if not self._announced:
            self._announced = True
            self._say(Report(0, End.READY))
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and self._ready:
            self._start(self._ready.popleft(), self._waiting.popleft())
            self._arm()

    def _start(self, place: _Place, request: Request) -> None:
        os.write(place.script, request.code)
        place.call = request.call
        self._running[request.call] = place
        for reader in place.captures:
            os.set_blocking(reader, False)
            self._watch(reader, lambda reader=reader: self._drain(place, reader))
        place.started = time.monotonic()
        place.deadline = place.started + self._wall_seconds
        try:
            place.go.send(b"g")
        except BrokenPipeError:  # it died while it was waiting: nothing of the program has run
            place.end = End.SETUP

    def _drain(self, place: _Place, reader: int) -> bool:
        """Read once; False when there is nothing more to read now."""
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._forget(reader)
            return False
        capture = place.captures[reader]
        capture.add(data)
        if capture.total > _FLOOD and place.end is End.EXITED:
            self._kill(place, End.OUTPUT)
        return True

    def _kill(self, place: _Place, end: End) -> None:
        place.end = end
        self._orders.send(ORDER.pack(Order.KILL, place.number))
        place.deadline = time.monotonic() + _GRACE

    # The zygote's wire.

    def _read_news(self) -> None:
        news = self._orders.recv(1024)
        if not news or news.startswith(FAULT):
            self._say(Report(0, End.SETUP, err=news.removeprefix(FAULT)))
            self._flush()
            self._open = False
            return
        number, status, out_of_memory, cpu = NEWS.unpack(news)
        place = self._places.pop(number)
        if place.call:
            self._finish(place, status, End.MEMORY if out_of_memory else place.end, cpu)
        elif self._waiting and place.end is End.SETUP:
            self._say(Report(self._waiting.popleft().call, End.SETUP, err=place.fault))
        elif not self._announced:
            self._say(Report(0, End.SETUP, err=place.fault))
        self._release(place)
        if place.end is not End.SETUP or self._waiting:
            self._arm()

    def _finish(self, place: _Place, status: int, end: End, cpu: float) -> None:
        seconds = time.monotonic() - place.started
        for reader in place.captures:
            while reader in self._handlers and self._drain(place, reader):
                pass
        out, err = place.captures.values()
        totals = (out.total, err.total)
        del self._running[place.call]
        self._say(Report(place.call, end, status, seconds, cpu, *totals, out.kept, err.kept))

    def _release(self, place: _Place) -> None:
        if place in self._ready:
            self._ready.remove(place)
        for descriptor in (place.go.fileno(), *place.captures):
            if descriptor in self._handlers:
                self._forget(descriptor)
        for reader in place.captures:
            os.close(reader)
        os.close(place.script)
        place.go.close()

    # Time.

    def _timeout(self) -> float | None:
        if not self._running:
            return None
        due = min(place.deadline for place in self._running.values())
        return max(0.0, min(due, self._next_inspection) - time.monotonic()) * 1000

    def _keep_time(self) -> None:
        now = time.monotonic()
        for place in self._running.values():
            if now >= place.deadline and place.end is not End.EXITED:
                raise TimeoutError(f"call {place.call} was killed and did not end")
            if now >= place.deadline:
                self._kill(place, End.TIMEOUT)
        if now >= self._next_inspection:
            self._next_inspection = now + _INSPECT_EVERY
            if any(now - place.started > _INSPECT_EVERY for place in self._running.values()):
                self._orders.send(ORDER.pack(Order.INSPECT, 0))


def main(wire: str, parent: str, limits: str) -> None:
    """Run a supervisor for the process `parent`, which holds the other end of `wire`."""
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() == int(parent):
        with socket.socket(fileno=int(wire)) as tool:
            supervise(tool, Limits.from_json(limits))
