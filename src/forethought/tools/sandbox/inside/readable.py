"""What programs may read where nothing can be covered: the trees they need, less hidden folders.

Landlock can only allow, and whatever is below what it allows. So a tree with a hidden folder in
it is taken apart, and its own folders may be listed but not read.
"""

import os
import sysconfig
from collections.abc import Collection, Iterable
from typing import NamedTuple


class Readable(NamedTuple):
    """Paths to read with all below them, and folders whose names may be seen."""

    read: tuple[str, ...]
    list: tuple[str, ...]


def apart(trees: Iterable[str], packages: Collection[str], hidden: Iterable[str]) -> Readable:
    """The trees and packages without the hidden folders that lie within a tree."""
    kept = {os.path.realpath(path) for path in (*packages, sysconfig.get_path("stdlib"))}
    roots = sorted({os.path.realpath(tree) for tree in trees})
    covered = {
        path
        for path in hidden
        if any(path.startswith(root + "/") for root in roots)
        and not any(f"{each}/".startswith(path + "/") for each in kept)
    }
    read, listed = list(kept.intersection(packages)), list[str]()
    waiting = roots
    while waiting:
        path = waiting.pop()
        if path in covered or os.path.islink(path):
            continue
        if any(inner.startswith(path + "/") for inner in covered):
            listed.append(path)
            waiting += (f"{path}/{name}" for name in os.listdir(path))
        else:
            read.append(path)
    return Readable(tuple(read), tuple(listed))


def refuse_closed(path: str) -> None:
    """Raise `PermissionError` if another user could not get to this folder."""
    while True:
        if not os.stat(path).st_mode & 1:
            raise PermissionError(
                f"{path} is closed to the users that programs run as: name in tool.python an "
                "interpreter that every user can read"
            )
        if path == "/":
            return
        path = os.path.dirname(path)
