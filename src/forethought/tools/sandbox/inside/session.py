"""One interpreter for a session's programs: each finds the variables that the others left.

Not trusted, like `program`. After each program it says one frame of a fixed size.
"""

import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from .frames import BAD_SYNTAX, CELL_DONE, DONE, START
from .program import CELL, Ending, Parts, Streams, compiled, execute, new_main


def serve(wire: socket.socket, script: int, length: int, streams: Streams) -> None:
    """Run programs until the wire closes. An interrupt ends the program, not the session."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main = new_main(streams)
    while True:
        code = 1
        with suppress(KeyboardInterrupt):  # it may come a moment after the program's end
            code = _run(os.pread(script, length, 0).decode(), main, streams)
        start = _exchange(wire, CELL_DONE.pack(DONE, code))
        if not start:
            return
        _, length = START.unpack(start)


def _run(source: str, main: dict[str, Any], streams: Streams) -> int:
    reading = Ending(streams[2], BAD_SYNTAX)
    parts: Parts | None = None
    with reading:
        parts = compiled(source, CELL)
    ending = Ending(streams[2])
    with ending:
        if parts is not None:
            execute(parts, main)
    for stream in (sys.stdout, sys.stderr):
        with ending:
            stream.flush()
    return reading.code or ending.code


def _exchange(wire: socket.socket, frame: bytes) -> bytes:
    """Say that the program is over, and wait for the next."""
    sent = False
    while True:
        with suppress(KeyboardInterrupt):
            if not sent:
                sent = True
                wire.send(frame)
            return wire.recv(START.size)
