"""One writer a run: a lock that dies with the process that holds it."""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from forethought.core.errors import RecipeError
from forethought.journal.files import explained


@contextmanager
def writer_lock(folder: Path, name: str) -> Generator[None]:
    """Hold the right to write in `folder`; raise `RecipeError` when another process has it.

    Also raises it where the file `name` cannot be made, or something else stands in its place.
    The kernel gives the lock up when its holder dies, so a killed run needs no clean-up. The
    file stays: deleting it would let two writers lock two files of one name.
    """
    path = folder / name
    with explained(path):
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with explained(path):
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(errno.EEXIST, "it is no regular file")
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(number, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise RecipeError(
                f"{folder} is being written by process {holder}: wait for it, stop it, or name "
                "another folder with --run"
            ) from None
        with explained(path):
            os.ftruncate(number, 0)
            os.pwrite(number, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(number)
