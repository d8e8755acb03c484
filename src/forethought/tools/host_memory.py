"""How much memory is left to this process, on its host and in a container around it; and whether
the kernel had to end processes because there was too little.

Not what is left on a GPU, nor what could be swapped out.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil


class _Names(NamedTuple):
    """What the files of a control group are called, and in its statistics what it gives back."""

    limit: str
    usage: str
    given_back: str


_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Names("memory.max", "memory.current", "inactive_file")


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that this process may still take: the least that the host and every limit leave.

    The limits are those of its control group and of all groups around that one, as a container's,
    of either version. As container tools count, a group's files that nobody has read of late are
    no part of what it holds. `root` is the folder that has `proc` and `sys`.
    """
    rooms = [_room(folder, names) for folder, names in _groups(root)]
    return min([psutil.virtual_memory().available, *(room for room in rooms if room is not None)])


def processes_ended(root: Path = Path("/")) -> int:
    """How many processes the kernel has ended for want of memory since it began.

    Those of other containers on this host are among them. 0 where the kernel does not say.
    """
    try:
        said = (root / "proc/vmstat").read_text()
    except OSError:
        return 0
    return int((said.partition("\noom_kill ")[2].split() or ["0"])[0])


def _groups(root: Path) -> Iterator[tuple[Path, _Names]]:
    """The folders of the control groups that this process is in, as far as they can be seen.

    In a container the topmost folder may be that of its own group, whatever that is called outside.
    """
    mounts = root / "sys/fs/cgroup"
    for line in (*_memberships(root), "0::/", "0:memory:/"):
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path)
        for group in (own, *own.parents):
            below = group.relative_to("/")
            if not controllers:
                yield mounts / below, _V2
                yield mounts / "unified" / below, _V2
            elif "memory" in controllers.split(","):
                yield mounts / "memory" / below, _V1


def _memberships(root: Path) -> list[str]:
    """What the kernel says of this process's groups, each as `number:controllers:path`."""
    try:
        return (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []


def _room(folder: Path, names: _Names) -> int | None:
    """Bytes that a group has left; None where it has no limit, or is not to be seen."""
    try:
        limit = (folder / names.limit).read_text().strip()
        usage = int((folder / names.usage).read_text())
        statistics = (folder / "memory.stat").read_text().split()
    except OSError:
        return None
    if limit == "max":
        return None
    counts = dict(zip(statistics[::2], statistics[1::2], strict=True))
    return max(0, int(limit) - usage + int(counts.get(names.given_back, 0)))
