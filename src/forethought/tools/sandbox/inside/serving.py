"""Serving: hands programs to the zygote's children, drains their output, keeps the deadlines.

One thread, no blocking call: pipes are drained while programs run, so that neither a flood of
output nor a stalled tool can hold up another call.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Callable

from . import zygote
from .clock import Clock
from .frames import FAULT, NEWS, PONG, Ask, End, Order, Report, Request, State, take_waiting
from .limits import Limits
from .orders import OrderWire
from .places import Place, arm, exit_code
from .toolwire import ToolWire

_ARMED = 2
_INSPECT_EVERY = 0.05
_LONG = 0.1  # seconds after which a program must give way to shorter ones
_INTERRUPT_GRACE = 1.0
_KILL_GRACE = 10.0


class Serving:
    """The supervisor's loop, between the wire to the tool and the wire to the zygote."""

    def __init__(self, tool: socket.socket, orders: socket.socket, limits: Limits) -> None:
        self._wall_seconds = limits.wall_seconds
        self._idle_seconds = limits.idle_seconds
        self._waiting = deque[Request]()
        self._ready = deque[Place]()
        self._places = dict[int, Place]()
        self._running = dict[int, Place]()
        self._sessions = dict[int, Place]()
        self._arming = 0
        self._numbers = 0
        self._announced = False
        self._rested = False
        self._next_inspection = 0.0
        self._poll = select.poll()
        self._handlers = dict[int, Callable[[], object]]()
        self._tool = ToolWire(tool, self._poll)
        self._zygote = OrderWire(orders, self._poll)
        self._watch(tool.fileno(), self._read_tool)
        self._watch(orders.fileno(), self._read_news)

    def serve(self) -> None:
        """Handle whatever comes until the tool or the zygote is gone."""
        self._arm()
        while self._tool.open:
            for descriptor, event in self._poll.poll(self._timeout()):
                if event & ~select.POLLOUT and descriptor in self._handlers:
                    self._handlers[descriptor]()
            self._keep_time()
            self._tool.flush()
            self._zygote.flush()

    def _watch(self, descriptor: int, handler: Callable[[], object]) -> None:
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None):
            self._poll.unregister(descriptor)

    # What the tool asks.

    def _read_tool(self) -> None:
        for request in self._tool.read():
            self._handle(request)
        self._dispatch()
        self._arm()

    def _handle(self, request: Request) -> None:
        if request.ask is Ask.RUN:
            self._waiting.append(request)
        elif request.ask is Ask.CANCEL:
            self._waiting = deque(each for each in self._waiting if each.call != request.call)
            if request.call in self._running:
                self._kill(self._running[request.call], End.TIMEOUT)
        elif request.ask is Ask.CLOSE and request.session in self._sessions:
            self._kill(self._sessions[request.session], End.EXITED)
        elif request.ask is Ask.PING:
            self._zygote.order(Order.PING, request.call)

    # Children: armed, ready, running, over.

    def _arm(self) -> None:
        while self._arming + len(self._ready) < _ARMED:
            self._numbers += 1
            place = self._places[self._numbers] = arm(self._numbers, self._zygote)
            self._arming += 1
            self._watch(place.go.fileno(), lambda place=place: self._hear_newborn(place))

    def _hear_newborn(self, place: Place) -> None:
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
            self._tool.say(Report(0, End.READY))
        self._dispatch()

    def _dispatch(self) -> None:
        held = deque[Request]()
        while self._waiting and (self._ready or any(r.session for r in self._waiting)):
            request = self._waiting.popleft()
            place = self._sessions.get(request.session)
            if place is None and self._ready:
                place = self._ready.popleft()
                self._start(place, request)
                self._arm()
            elif place is not None and place.end is End.EXITED and not place.call:
                self._start(place, request)
            else:
                held.append(request)
        self._waiting.extendleft(reversed(held))

    def _start(self, place: Place, request: Request) -> None:
        known = place.session != 0
        alive = place.begin(request, time.monotonic(), self._wall_seconds)
        self._running[request.call] = place
        for reader in place.captures:
            if reader not in self._handlers:
                self._watch(reader, lambda reader=reader: self._drain(place, reader))
        if not alive and not known:  # it died while it was waiting: nothing of it has run
            place.end = End.SETUP
        elif not alive:
            self._kill(place, End.FORGED)
        if request.session:
            self._sessions[request.session] = place
            self._forget(place.go.fileno())
            self._watch(place.go.fileno(), lambda: self._hear_session(place))
            self._zygote.order(Order.CELL, place.number)

    def _drain(self, place: Place, reader: int) -> bool:
        """Read once; False when there is nothing more to read now."""
        data = place.drain(reader)
        if data == b"":
            self._forget(reader)
        if place.flooded(reader) and place.end is End.EXITED:
            self._kill(place, End.OUTPUT)
        return bool(data)

    def _kill(self, place: Place, end: End) -> None:
        place.end = end
        self._zygote.order(Order.KILL, place.number)
        place.clock = Clock(time.monotonic(), _KILL_GRACE)
        if place.session and not place.call and self._sessions.get(place.session) is place:
            del self._sessions[place.session]

    # What a session's interpreter says: one fixed-size frame a program, and nothing else.

    def _hear_session(self, place: Place) -> None:
        said = place.hear()
        if not said:  # its end, its silence until the deadline, or what would wake us for ever
            self._forget(place.go.fileno())
        if said == b"" or place.end is not End.EXITED:
            return
        code = exit_code(said)
        if said is None or (place.call and code is None):
            self._kill(place, End.FORGED)
        if code is None or not place.call:
            return
        self._drain_all(place)
        end = End.TIMEOUT if place.interrupted else place.end
        if end is End.EXITED or end is End.TIMEOUT:
            now = place.idle_since = time.monotonic()
            del self._running[place.call]
            self._tool.say(place.report(end, code << 8, 0.0, now))
            place.call = 0
            self._rested = True  # what it leaves running is found at a look
            self._zygote.order(Order.REST, place.number)
            self._dispatch()

    # The zygote's wire.

    def _read_news(self) -> None:
        news = self._zygote.hear()
        waiting = take_waiting(news)
        if waiting is not None:
            self._note_turns(waiting)
        elif len(news) == PONG.size:
            self._tool.say(Report(PONG.unpack(news)[0], End.READY))
        elif len(news) == NEWS.size and not news.startswith(FAULT):
            self._note_end(*NEWS.unpack(news))
        else:
            self._tool.say(Report(0, End.SETUP, err=news.removeprefix(FAULT)))
            self._tool.flush()
            self._tool.open = False

    def _note_turns(self, waiting: tuple[int, ...]) -> None:
        self._zygote.looking = False
        now = time.monotonic()
        for place in self._running.values():
            place.note_turn(now, waits=place.number in waiting)

    def _note_end(self, number: int, status: int, ended_by: int, cpu: float) -> None:
        place = self._places[number]
        if place.go.fileno() in self._handlers and not place.session:
            self._hear_newborn(place)  # the news of its end has overtaken its own last words
        del self._places[number]
        if self._sessions.get(place.session) is place:
            del self._sessions[place.session]
        if place.call:
            self._finish(place, status, End(ended_by) or place.end, cpu)
        elif place.end is End.SETUP:
            self._refuse_one(place.fault)
        self._release(place)
        if place.end is not End.SETUP or self._wanting():
            self._arm()
        self._dispatch()

    def _wanting(self) -> Request | None:
        """The first program that waits for a new child, and not for its session."""
        return next((r for r in self._waiting if r.session not in self._sessions), None)

    def _refuse_one(self, fault: bytes) -> None:
        """A child could not be made: tell the first program that wants one, or the tool."""
        if request := self._wanting():
            self._waiting.remove(request)
            self._tool.say(Report(request.call, End.SETUP, err=fault))
        elif not self._announced:
            self._tool.say(Report(0, End.SETUP, err=fault))

    def _finish(self, place: Place, status: int, end: End, cpu: float) -> None:
        now = time.monotonic()
        self._drain_all(place)
        del self._running[place.call]
        if place.session:
            place.state |= State.LOST
        self._tool.say(place.report(end, status, cpu, now))

    def _drain_all(self, place: Place) -> None:
        for reader in place.captures:
            while reader in self._handlers and self._drain(place, reader):
                pass

    def _release(self, place: Place) -> None:
        if place in self._ready:
            self._ready.remove(place)
        for descriptor in (place.go.fileno(), *place.captures):
            self._forget(descriptor)
        place.close()

    # Time.

    def _timeout(self) -> float | None:
        due = [place.clock.due for place in self._running.values()]
        if not self._zygote.looking and (due or self._rested):
            due.append(self._next_inspection)
        if not due:
            return 1000.0 if self._sessions else None
        return max(0.0, min(due) - time.monotonic()) * 1000

    def _keep_time(self) -> None:
        now = time.monotonic()
        for place in self._running.values():
            if now >= place.clock.due:
                self._call_time(place, now)
        for place in tuple(self._sessions.values()):
            if not place.call and now - place.idle_since > self._idle_seconds:
                self._kill(place, End.EXITED)
        if now >= self._next_inspection and not self._zygote.looking:
            self._next_inspection = now + _INSPECT_EVERY
            self._inspect(now)

    def _call_time(self, place: Place, now: float) -> None:
        if place.end is not End.EXITED:
            raise TimeoutError(f"call {place.call} was killed and did not end")
        if place.session and not place.interrupted:
            place.interrupted = True
            place.clock = Clock(now, _INTERRUPT_GRACE)
            self._zygote.order(Order.INTERRUPT, place.number)
        else:
            self._kill(place, End.TIMEOUT)

    def _inspect(self, now: float) -> None:
        long = [p for p in self._running.values() if now - p.started > _INSPECT_EVERY]
        for place in long:
            if now - place.started > _LONG and len(self._running) > 1 and not place.demoted:
                place.demoted = True
                self._zygote.order(Order.DEMOTE, place.number)
        self._rested = False
        if long or self._sessions:
            self._zygote.look(len(self._running))
