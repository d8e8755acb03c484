"""A call as its zygote holds it: the processes that it began with, and what became of it."""

import os
import signal
from contextlib import suppress

from .frames import End


class Call:
    """One child, armed or running, and the init of its pid namespace (0: none yet, or ended)."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.init = 0
        self.child = 0
        self.status = 0
        self.cpu = 0.0
        self.ended_by = End.EXITED
        self.demoted = False
        self.interrupted = False
        self.in_session = False
        self.rests = False

    def kill(self) -> None:
        """End every process of the call; safe while one of the two is not reaped yet."""
        if self.init:
            os.kill(self.init, signal.SIGKILL)
        elif self.child:
            # Not reaped yet, it still holds both numbers, so that no stranger can be hit; its
            # group does not exist before the child has made it.
            os.kill(self.child, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.killpg(self.child, signal.SIGKILL)

    def begin_cell(self) -> None:
        """Another program of a session begins."""
        self.in_session = True
        self.rests = self.demoted = self.interrupted = False
