"""Files that appear whole or not at all, and what to do when the disk refuses.

Does not cover the database, which has transactions of its own.
"""

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import zstandard

from forethought.core.errors import RecipeError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
_DAMAGED = "it is not an intact journal; restore it from a copy or name another folder"
_WRITER = re.compile(r"\.(\d+)\.part$")
_NO_PARENT = {errno.ENOENT, errno.ENOTDIR}
_IN_THE_WAY = {errno.EISDIR, errno.EEXIST, errno.ENXIO}
_NO_NAME = {errno.ENAMETOOLONG, errno.ELOOP}


@contextmanager
def written_beside(path: Path) -> Generator[TextIO]:
    """A UTF-8 text file that replaces `path` when the block ends well, and otherwise vanishes.

    The new text is on the disk before the name changes hands, so that a reader (also one that
    comes after a power cut) finds the old file or the new one.
    """
    with explained(path):
        with replaced(path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)


@contextmanager
def replaced(path: Path) -> Generator[TextIO]:
    """The same without a wait for the disk: after a power cut the file may be older, or empty."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with explained(path):
        try:
            with beside.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            beside.replace(path)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def remove_left_over(folder: Path) -> None:
    """Remove what `replaced` left in `folder` when its process was killed."""
    for path in folder.glob(".*.part"):
        writer = _WRITER.search(path.name)
        if writer is not None and not _is_alive(int(writer[1])):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on the disk: what was renamed stays renamed after a power cut."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn a full disk, a missing permission or a damaged file at `path` into a `RecipeError`."""
    try:
        yield
    except OSError as error:
        remedy = _file_remedy(path, error.errno)
        if remedy is None:
            raise
        raise RecipeError(f"{path} cannot be written ({error.strerror}): {remedy}") from error
    except sqlite3.DatabaseError as error:
        remedy = _database_remedy(path, error)
        if remedy is None:
            raise
        # What cannot be decoded would be repeated, whatever is in it.
        told = str(error).partition(" with text ")[0]
        raise RecipeError(f"{path} cannot be used ({told}): {remedy}") from error


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Turn whatever keeps this user from reading what is at `path` into a `RecipeError`."""
    try:
        yield
    except OSError as error:
        raise RecipeError(
            f"{path} cannot be read ({error.strerror}): allow this user to read it, or name "
            "another path"
        ) from error


def damaged(path: Path, reason: object) -> RecipeError:
    """What to say of a file of a run that is not as it was written."""
    return RecipeError(f"{path} cannot be used ({reason}): {_DAMAGED}")


@contextmanager
def intact(path: Path) -> Generator[None]:
    """Turn whatever shows that the file at `path` is damaged into a `RecipeError`."""
    with explained(path):
        try:
            yield
        except (zstandard.ZstdError, ValueError, RecursionError) as error:
            raise damaged(path, str(error).partition("\n")[0]) from error


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _file_remedy(path: Path, number: int | None) -> str | None:
    if number in _NO_SPACE:
        return _free_space(path)
    if number in _NO_PERMISSION:
        return _allow_writing(path)
    if number in _NO_PARENT:
        return "name a path whose parent is a folder"
    if number in _IN_THE_WAY:
        return "remove or rename what stands at that name, or name another folder"
    if number in _NO_NAME:
        return "name another path"
    return None


def _database_remedy(path: Path, error: sqlite3.DatabaseError) -> str | None:
    # Errors that Python itself raises (a wrong number of values, ...) carry no SQLite name.
    name: str = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return _free_space(path)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return _allow_writing(path)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _DAMAGED
    if str(error).startswith(("no such table", "no such column", "Could not decode")):
        return _DAMAGED
    if name.startswith("SQLITE_BUSY"):
        return "another program holds it open; close that program and start again"
    return None


def _free_space(path: Path) -> str:
    folder = next(place for place in (path, *path.parents) if place.is_dir())
    free = shutil.disk_usage(folder).free / 1e6
    kept = sum(file.stat().st_size for file in folder.glob("checkpoints/**/*") if file.is_file())
    return (
        f"{free:,.0f} MB are free on its disk or within its quota; delete what is not needed "
        f"(`checkpoints/` of {folder} holds {kept / 1e6:,.0f} MB) and start again: committed "
        "steps are safe"
    )


def _allow_writing(path: Path) -> str:
    return f"allow this user to write in {path.parent}, or name another folder"
