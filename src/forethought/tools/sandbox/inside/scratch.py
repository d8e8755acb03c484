"""The folders that programs write to: how full they are, and how they are removed.

A program may have made them as deep, as many and as closed as it likes.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_DEEPEST = 32  # levels of folders
_LOOK_SECONDS = 0.1  # of the processor


class _Amount:
    """How much may still be found, and for how long it may be looked for."""

    def __init__(self, most_bytes: int, most_files: int) -> None:
        self._bytes = most_bytes
        self._files = most_files
        self._until = time.thread_time() + _LOOK_SECONDS

    @property
    def too_much(self) -> bool:
        """Whether more was found than there may be, or it takes too long."""
        return self._bytes < 0 or self._files < 0 or time.thread_time() > self._until

    def add(self, size: int) -> None:
        """Another file or folder was found."""
        self._bytes -= size
        self._files -= 1


def exceeds(folder: str, most_bytes: int, most_files: int) -> bool:
    """Whether there is more below `folder`.

    What cannot be looked at, or takes too long, counts as too much, and so does what lies deep.
    """
    amount = _Amount(most_bytes, most_files)
    try:
        _count(os.open(folder, _FOLDER), _DEEPEST, amount)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return amount.too_much


def nameless(folder: str, processes: Iterable[int], largest: int) -> int:
    """The bytes of files that were removed from `folder`, but that these processes still hold.

    One that is only mapped counts as one of the `largest`, since its size cannot be seen.
    """
    held, mapped = dict[int, int](), set[int]()
    for process in processes:
        with suppress(OSError):  # it has just ended, or is about to close its jail
            held.update(_held(process))
            mapped.update(_mapped(process, folder.encode() + b"/"))
    return sum(held.values()) + largest * len(mapped - held.keys())


def _held(process: int) -> Iterable[tuple[int, int]]:
    """The number and the size of each file without a name that a process has open."""
    for name in os.listdir(f"/proc/{process}/fd"):
        with suppress(FileNotFoundError):  # it has just closed that one
            found = os.stat(f"/proc/{process}/fd/{name}")
            if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                yield found.st_ino, found.st_blocks * 512


def _mapped(process: int, folder: bytes) -> Iterable[int]:
    """The number of each file of a folder that was removed, and that a process has mapped."""
    with open(f"/proc/{process}/maps", "rb") as file:
        maps = file.read()
    if folder in maps:
        for line in maps.splitlines():
            if folder in line and line.endswith(b" (deleted)"):
                yield int(line.split(maxsplit=5)[4])


def _count(folder: int, levels: int, amount: _Amount) -> None:
    """Add all that is below a folder, which is closed then. Raises `OSError` below `levels`."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError, NotADirectoryError):
                    amount.add(entry.stat(follow_symlinks=False).st_blocks * 512)
                    if entry.is_dir(follow_symlinks=False):
                        _count(_step_down(entry.name, folder, levels), levels - 1, amount)
                if amount.too_much:
                    return
    finally:
        os.close(folder)


def _step_down(name: str, folder: int, levels: int) -> int:
    if not levels:
        raise OSError(errno.ELOOP, "too deep")
    return os.open(name, _FOLDER, dir_fd=folder)


def remove(folder: str) -> None:
    """Remove a folder, going down and up one step at a time: its paths may be too long to name.

    Only for a folder in which nobody works any more, since it moves this process into it.
    """
    if not os.path.isdir(folder):
        return
    home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.chmod(folder, 0o700)
    os.chdir(folder)
    waiting = [_remove_files()]
    try:
        while len(waiting) > 1 or waiting[0]:
            if waiting[-1]:
                os.chmod(waiting[-1][-1], 0o700)
                os.chdir(waiting[-1][-1])
                waiting.append(_remove_files())
            else:
                waiting.pop()
                os.chdir("..")
                os.rmdir(waiting[-1].pop())
    finally:
        os.fchdir(home)
        os.close(home)
    os.rmdir(folder)


def _remove_files() -> list[str]:
    """Remove what is no folder here; the names of the folders that are left."""
    folders: list[str] = []
    for name in os.listdir():
        if stat.S_ISDIR(os.lstat(name).st_mode):
            folders.append(name)
        else:
            os.unlink(name)
    return folders
