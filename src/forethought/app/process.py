"""How a command lives as a process: quick to load, quick to stop, quick to leave."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from typing import Any

GRACE = 0.25
"""Seconds that work may keep the event loop from hearing Ctrl-C."""
PATIENCE = 15.0
"""Seconds that what was begun may take to end after Ctrl-C: then, whatever runs or waits is
interrupted, and again after as many."""


@contextmanager
def loading() -> Generator[None]:
    """Import large libraries without looking for garbage, of which importing makes little.

    What was imported stays for good, so no later search goes through it either.
    """
    collects, before = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if collects:
            gc.enable()


def leave() -> None:
    """Make the interpreter's end quick: everything goes with the process, so nothing is searched.

    Ctrl-C comes too late from here on, and is not heard.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()


def run_until_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, with an end within moments when Ctrl-C is pressed.

    The loop's task is cancelled where it waits, as `asyncio.run` does it. Work that keeps the loop
    from turning for `GRACE` seconds, such as loading a model, gets a `KeyboardInterrupt` where it
    is; so does everything at a second Ctrl-C, and what has not ended after `PATIENCE`. Either way
    `KeyboardInterrupt` is raised here.
    """
    if current_thread() is not main_thread():
        asyncio.run(work)  # signals are for another thread
        return
    ending = _Ending()
    try:
        with ending.listening():
            asyncio.run(_interruptible(work, ending))
    except asyncio.CancelledError:
        if ending.heard:
            raise KeyboardInterrupt from None
        raise


async def _interruptible(work: Coroutine[Any, Any, None], ending: "_Ending") -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_tell)
    ending.loop, ending.task = loop, asyncio.current_task()
    try:
        with _woken(loop):
            await work
    except KeyboardInterrupt:
        ending.heard = True  # also one that was raised by another handler than this one's
        raise asyncio.CancelledError from None  # as an end of a task the loop takes no other
    finally:
        ending.loop = None


@contextmanager
def _woken(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Let every signal end the loop's wait for events.

    One that comes a moment before the wait, or to another thread, would not be answered before
    the next event.
    """
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        loop.add_reader(here, _emptied, here)
        before = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(here)


def _emptied(wire: socket.socket) -> None:
    with suppress(BlockingIOError):
        wire.recv(4096)


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KeyboardInterrupt):  # which was asked for
        loop.default_exception_handler(context)


class _Ending:
    """What Ctrl-C comes to: the task is cancelled, or else whatever runs is interrupted.

    Its methods are handlers of signals: they run between two instructions of the main thread.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task: asyncio.Task[Any] | None = None
        self._pressed = False
        self._insisted = False
        self.heard = False

    @contextmanager
    def listening(self) -> Generator[None]:
        """Answer the signals; `asyncio.run` installs no handler of its own then."""
        handlers = {signal.SIGINT: self.press, signal.SIGALRM: self.insist}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def press(self, number: int, frame: object) -> None:
        """Ask the loop to cancel the task; insist at once when asked again."""
        if self._pressed or self.loop is None:
            self.heard = True
            raise KeyboardInterrupt
        self._pressed = True
        self.loop.call_soon_threadsafe(self._hear)
        signal.setitimer(signal.ITIMER_REAL, GRACE, PATIENCE)

    def insist(self, number: int, frame: object) -> None:
        """Interrupt what runs, unless the loop has heard and it is the first time."""
        first, self._insisted = not self._insisted, True
        if self._pressed and not (first and self.heard):
            self.heard = True
            raise KeyboardInterrupt

    def _hear(self) -> None:
        if not self.heard and self.task is not None:
            self.heard = True
            self.task.cancel()
