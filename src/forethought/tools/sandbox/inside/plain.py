"""No walls, for the tier `none`: a process of its own with limits, no more.

A program can read what the user can read and reach the network. Not covered: a limit on the
number of processes, which the kernel would count together with all others of the user.
"""

import os
import signal
from collections.abc import Collection, Mapping

from . import kernel, scratch
from .limits import TMP_FILES, TMP_MEGABYTES, Limits


class PlainProcess:
    """An own session and an empty working directory for each call."""

    def __init__(self, limits: Limits) -> None:
        self._packages = limits.packages
        self._folder = f"/tmp/programs-{os.urandom(8).hex()}"

    def prepare(self) -> None:
        """Make the folder that the working directories will be in."""
        os.mkdir(self._folder, 0o700)

    def clear(self) -> None:
        """Remove it, with those of calls that a dead zygote could not end itself."""
        scratch.remove(self._folder)

    def settle(self) -> tuple[str, ...]:
        """Become the parent of whatever outlives its own parent, to be able to end it."""
        kernel.adopt_orphans()
        kernel.forbid_new_privileges()
        return self._packages

    def open(self, place: int) -> int:
        """Make the working directory."""
        os.mkdir(f"{self._folder}/{place}", 0o700)
        return 0

    def opened(self) -> None:
        """Nothing was changed."""

    def enter(self, place: int) -> None:
        """Tie this process to the zygote's life."""
        kernel.die_with_parent(signal.SIGKILL)
        os.chdir(f"{self._folder}/{place}")

    def users(self) -> Mapping[int, int]:
        """None: all programs are the user that the tool is."""
        return {}

    def overfull(self, place: int, processes: Collection[int]) -> bool:
        """Whether the call's folder has more in it than a call may have."""
        return scratch.exceeds(f"{self._folder}/{place}", TMP_MEGABYTES << 20, TMP_FILES)

    def close(self, place: int, others: Collection[int]) -> None:
        """Kill what left its call's process group (of any call), and remove the directory.

        What an orphan leaves behind is an orphan only once that is gone.
        """
        while orphans := self._children() - set(others):
            for orphan in orphans:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)
        scratch.remove(f"{self._folder}/{place}")

    def _children(self) -> set[int]:
        descriptor = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        try:
            return {int(child) for child in os.read(descriptor, 1 << 16).split()}
        finally:
            os.close(descriptor)
