"""The supervisor: takes programs from the tool, has a zygote run them, and keeps the deadlines.

It stays outside the jail, trusts no program and is forked from nothing that a program touched.
What it does all day is in `serving`.
"""

import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from . import kernel, zygote
from .fence import Fence
from .frames import End, Report
from .jail import Namespaces
from .limits import Limits
from .plain import PlainProcess
from .serving import Serving
from .walls import Walls

_WALLS: dict[str, Callable[[Limits], Walls]] = {
    "namespaces": Namespaces,
    "landlock-uid": Fence,
    "landlock": Fence,
    "none": PlainProcess,
}


def supervise(tool: socket.socket, limits: Limits) -> None:
    """Serve the tool until it closes its end, or dies."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    walls = _WALLS[limits.tier](limits)
    try:
        walls.prepare()
    except OSError as error:
        _refuse(tool, error)
        return
    try:
        child = os.fork()
    except OSError as error:
        walls.clear()
        _refuse(tool, error)
        return
    if child == 0:
        _become_zygote(theirs, limits, walls)
    theirs.close()
    try:
        Serving(tool, ours, limits).serve()
    finally:
        ours.close()
        os.waitpid(child, 0)
        walls.clear()


def _refuse(tool: socket.socket, error: OSError) -> None:
    tool.send(Report(0, End.SETUP, err=str(error).encode()).pack())


def _become_zygote(orders: socket.socket, limits: Limits, walls: Walls) -> NoReturn:
    keep = os.dup2(orders.detach(), 3, inheritable=False)
    os.closerange(keep + 1, 256)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    zygote.live(socket.socket(fileno=keep), limits, walls)


def main(wire: str, parent: str, limits: str) -> None:
    """Run a supervisor for the process `parent`, which holds the other end of `wire`."""
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() == int(parent):
        with socket.socket(fileno=int(wire)) as tool:
            supervise(tool, Limits.from_json(limits))
