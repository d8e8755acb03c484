"""The zygote: a small frozen interpreter that forks one jailed child per call.

It never sees a program or its output, so that no child can find traces of another call in the
memory it inherits. It obeys the supervisor's orders, and reports each child's end once nothing
of the call is alive any more. It never waits for one process: it waits for all of them at once.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from . import memory, precedence, program, session, warmth
from .call import Call
from .frames import FAULT, NEWS, ORDER, PONG, START, End, Order, pack_waiting
from .limits import (
    NOT_PRELOADED,
    Limits,
    limit_descriptors,
    limit_family,
    limit_processor,
    volunteer_for_eviction,
)
from .walls import Walls

_HIGHEST = 1 << 20  # no descriptor is above

READY = b"R"
"""What a child says when its jail is closed: whatever follows is the program's doing."""


class _LastWords:
    """Sends what went wrong in the block to a socket, instead of a traceback to nobody."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self._wire.send(FAULT + f"{error or kind.__name__}".encode()[:500])


def live(orders: socket.socket, limits: Limits, walls: Walls) -> NoReturn:
    """Close the server's jail, import what programs will want, and obey until the wire closes."""
    try:
        with _LastWords(orders):
            _settle_in(limits, walls)
            _Zygote(orders, limits, walls).serve()
    finally:
        os._exit(0)


def _settle_in(limits: Limits, walls: Walls) -> None:
    volunteer_for_eviction()
    packages = walls.settle()
    sys.path += packages
    for module in limits.preload:
        _import(module)
    warmth.warm_up()
    sys.dont_write_bytecode = True
    sys.executable = os.path.realpath(sys.executable)
    sys.argv = [program.NAME]
    sys.path.insert(0, "")
    # With a handler of Python's for it, an interrupt would run in the sleeping inits as well.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _forget_host()
    limit_family(limits.memory_mb)


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{NOT_PRELOADED} {module!r}, which cannot be imported ({error}): install it for "
            "tool.python, or leave it out"
        ) from error


def _forget_host() -> None:
    """Take the harness, and where it was loaded from, out of the program's sight."""
    for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
        del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if path not in sys.path]:
        del sys.path_importer_cache[path]


class _Zygote:
    def __init__(self, orders: socket.socket, limits: Limits, walls: Walls) -> None:
        self._orders = orders
        self._limits = limits
        self._walls = walls
        self._poll = select.poll()
        self._poll.register(orders, select.POLLIN)
        self._calls = dict[int, Call]()
        self._watched = dict[int, tuple[Call, bool]]()
        self._streams = program.standard_streams()
        self._shared = memory.own_kilobytes()
        self._precedence = precedence.Precedence()

    def serve(self) -> None:
        """Obey until the supervisor is gone; then leave nothing behind."""
        gc.collect()
        gc.disable()
        gc.freeze()
        # It is gone, too, where the wire breaks: news were under way to it, or not read yet.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._obey_all()
        self._end_everything()

    def _obey_all(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._orders.fileno():
                    self._note_end(descriptor)
                elif not self._obey():
                    return

    def _obey(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._orders, ORDER.size, 4)
        if not message:
            return False
        order, place = ORDER.unpack(message)
        if order == Order.ARM:
            self._arm(place, descriptors)
        elif order == Order.PING:
            self._orders.send(PONG.pack(place))
        elif order == Order.INSPECT:
            self._inspect(running=place)
        elif place in self._calls:
            self._treat(order, self._calls[place])
        return True

    def _treat(self, order: int, call: Call) -> None:
        if order == Order.KILL:
            call.kill()
        elif order == Order.DEMOTE:
            call.demoted = True
        elif order == Order.CELL:
            call.begin_cell()
            if call.child and call.place in self._precedence.held:
                os.kill(call.child, signal.SIGCONT)  # what it has started goes on at the next look
        elif order == Order.REST:
            call.rests = True
        elif order == Order.INTERRUPT and call.child:
            call.interrupted = True
            os.kill(call.child, signal.SIGINT)

    def _arm(self, place: int, descriptors: list[int]) -> None:
        """Fork a child that closes its jail at once and then waits for a program."""
        call = self._calls[place] = Call(place)
        try:
            call.init = self._walls.open(place)
            call.child = os.fork()
        except OSError as error:  # the host has no room now, and may have some later
            os.write(descriptors[0], FAULT + f"no process could be started: {error}".encode())
        else:
            if call.child == 0:
                self._be_child(place, descriptors)
        self._walls.opened()
        for descriptor in descriptors:
            os.close(descriptor)
        if call.child:
            self._watch(call, call.child, is_child=True)
        if call.init:
            self._watch(call, call.init, is_child=False)
        if not call.child:
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        call.kill()
        if not call.init:
            self._report(call)

    def _watch(self, call: Call, process: int, *, is_child: bool) -> None:
        descriptor = os.pidfd_open(process)
        self._watched[descriptor] = (call, is_child)
        self._poll.register(descriptor, select.POLLIN)

    def _note_end(self, descriptor: int) -> None:
        call, is_child = self._watched.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        if is_child:
            call.kill()
            _, call.status, usage = os.wait4(call.child, 0)
            call.cpu = usage.ru_utime + usage.ru_stime
            call.child = 0
        else:
            os.waitpid(call.init, 0)
            call.init = 0
        if not (call.child or call.init):
            self._report(call)

    def _report(self, call: Call) -> None:
        del self._calls[call.place]
        self._precedence.forget(call.place)
        self._walls.close(call.place, {other.child for other in self._calls.values()})
        self._orders.send(NEWS.pack(call.place, call.status, call.ended_by, call.cpu))

    def _inspect(self, running: int) -> None:
        roots = {call.child: call.place for call in self._calls.values() if call.child}
        roots |= {call.init: call.place for call in self._calls.values() if call.init}
        long: dict[int, precedence.Family] = {}
        for place, family in memory.members(roots, self._walls.users()).items():
            call = self._calls[place]
            call.ended_by = call.ended_by or self._excess(call, family)
            gives_way = (
                call.demoted or call.rests or precedence.is_crowd(family, beside=running - 1)
            )
            if call.ended_by is not End.EXITED:
                call.kill()
            elif gives_way or place in self._precedence.held:
                family.pop(call.init, None)  # which sleeps
                urgent = call.interrupted or not gives_way
                long[place] = precedence.Family(family, call.in_session, call.rests, urgent)
        self._precedence.give_way(long)
        self._orders.send(pack_waiting(self._precedence.waiting))

    def _excess(self, call: Call, family: Mapping[int, memory.Process]) -> End:
        """What a call takes more of than it may."""
        threads = sum(each.threads for each in family.values())
        if self._limits.shares_user and threads > self._limits.processes:
            return End.THREADS
        if memory.kilobytes(family, self._shared) > self._limits.memory_mb * 1024:
            return End.MEMORY
        return End.DISK if self._walls.overfull(call.place, family) else End.EXITED

    def _end_everything(self) -> None:
        """Once nobody is there to be told: here, waiting for one process is all there is to do."""
        for call in self._calls.values():
            call.kill()
        while self._calls:
            _, call = self._calls.popitem()
            os.waitpid(call.child or call.init, 0)
            self._walls.close(call.place, {other.child for other in self._calls.values()})
        self._walls.clear()

    def _be_child(self, place: int, descriptors: list[int]) -> NoReturn:
        """In the child: close the jail, say so, wait for a program, run it, end."""
        code = 1
        try:
            wire, script = self._prepare(place, descriptors)
            code = self._run(wire, script)
        finally:
            os._exit(code)

    def _prepare(self, place: int, descriptors: list[int]) -> tuple[socket.socket, int]:
        self._orders.close()  # an end held here would hide the zygote's death
        go, script, out, err = descriptors
        wire = socket.socket(fileno=go)
        with _LastWords(wire):
            os.setpgid(0, 0)
            self._walls.enter(place)
            wire.send(READY)
        os.dup2(out, 1)
        os.dup2(err, 2)
        return wire, script

    def _run(self, wire: socket.socket, script: int) -> int:
        start = wire.recv(START.size)
        if not start:
            os._exit(0)
        is_session, length = START.unpack(start)
        nothing = os.open(os.devnull, os.O_RDONLY)
        gc.enable()
        if is_session:
            os.dup2(nothing, 0)
            _close_all_but({wire.fileno(), script})
            limit_descriptors()
            warmth.reseed()
            session.serve(wire, script, length, self._streams)
            return 0
        source = os.pread(script, length, 0).decode()
        has_input = os.fstat(script).st_size > length
        os.lseek(script, length, os.SEEK_SET)
        os.dup2(script if has_input else nothing, 0)
        wire.detach()
        _close_all_but(set())
        limit_descriptors()
        limit_processor(self._limits)
        warmth.reseed()
        return program.run(source, self._streams)


def _close_all_but(kept: set[int]) -> None:
    """Close every descriptor above the three standard ones, save these."""
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, _HIGHEST)
