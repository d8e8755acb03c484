"""Weak walls, where namespaces are not allowed: a process of its own with limits, no more.

A program can read what the user can read and reach the network. Not covered: a limit on the
number of processes, which the kernel would count together with all others of the user.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress

from . import kernel
from .limits import Limits, limit_program


class PlainProcess:
    """An own session and an empty working directory for each call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder = f"/tmp/programs-{os.urandom(8).hex()}"

    def prepare(self) -> None:
        """Make the folder that the working directories will be in."""
        os.mkdir(self._folder, 0o700)

    def clear(self) -> None:
        """Remove it, with those of calls that a dead zygote could not end itself."""
        _remove(self._folder)

    def settle(self) -> None:
        """Become the parent of whatever outlives its own parent, to be able to end it."""
        kernel.adopt_orphans()
        kernel.forbid_new_privileges()

    def open(self, place: int) -> int:
        """Make the working directory."""
        os.mkdir(f"{self._folder}/{place}", 0o700)
        return 0

    def opened(self) -> None:
        """Nothing was changed."""

    def enter(self, place: int) -> None:
        """Limit this process, and tie it to the zygote's life."""
        kernel.die_with_parent(signal.SIGKILL)
        os.chdir(f"{self._folder}/{place}")
        limit_program(self._limits)

    def close(self, place: int, others: Collection[int]) -> None:
        """Kill what left its call's process group (of any call), and remove the directory."""
        for orphan in self._children() - set(others):
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
        _remove(f"{self._folder}/{place}")

    def _children(self) -> set[int]:
        descriptor = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        try:
            return {int(child) for child in os.read(descriptor, 1 << 16).split()}
        finally:
            os.close(descriptor)


def _remove(folder: str) -> None:
    """Remove a folder as far as the program left it removable (as `shutil`, which is large)."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files + folders:
            path = f"{parent}/{name}"
            with suppress(OSError):
                (os.rmdir if name in folders and not os.path.islink(path) else os.unlink)(path)
    with suppress(OSError):
        os.rmdir(folder)
