"""How much memory each call's processes hold together, and which processes those are."""

import os
from collections.abc import Mapping
from typing import NamedTuple

_NUMBERS = (b"\nPPid:", b"\nUid:", b"\nRssAnon:", b"\nVmSwap:", b"\nRssShmem:", b"\nThreads:")
_WIDTH = 32  # in which a number ends, however it is padded


class Process(NamedTuple):
    """What the kernel says of a process: its parent, its user, private kilobytes, with those that
    are swapped out, and shared ones, how many threads it has, and whether it computes, or would if
    it were let."""

    parent: int = 0
    user: int = 0
    private: int = 0
    public: int = 0
    threads: int = 0
    busy: bool = False


def own_kilobytes() -> int:
    """The private memory of this process, which its children share until they write to it."""
    return read(os.getpid()).private


def members(roots: Mapping[int, int], users: Mapping[int, int]) -> dict[int, dict[int, Process]]:
    """The processes of each call: all below its first ones, and all of its own user.

    `roots` maps a first process to its call, `users` a user that only one call has. Every value
    is readable for any process, so that none can hide.
    """
    processes = {int(name): read(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found: dict[int, dict[int, Process]] = {call: {} for call in roots.values()}
    for number, process in processes.items():
        call = users.get(process.user)
        if call is None:
            call = _call_of(number, processes, roots)
        if call in found:
            found[call][number] = process
    return found


def kilobytes(family: Mapping[int, Process], shared: int) -> int:
    """What these processes hold beyond `shared`, the memory inherited from the zygote."""
    return sum(max(0, each.private - shared) + each.public for each in family.values())


def _call_of(number: int, processes: Mapping[int, Process], roots: Mapping[int, int]) -> int | None:
    while number not in roots:
        if number not in processes:
            return None
        number = processes[number].parent
    return roots[number]


def read(number: int) -> Process:
    """One process; zeros for one that is gone."""
    try:
        descriptor = os.open(f"/proc/{number}/status", os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return Process()
    try:
        status = os.read(descriptor, 4096)
    except ProcessLookupError:
        return Process()
    finally:
        os.close(descriptor)
    busy = status.partition(b"\nState:\t")[2][:1] in (b"R", b"T")
    numbers = (_number(status, name) for name in _NUMBERS)
    parent, user, private, swapped, public, threads = numbers
    return Process(parent, user, private + swapped, public, threads, busy)


def _number(status: bytes, name: bytes) -> int:
    """The number that follows a name at a line's beginning; 0 where that line is missing."""
    _, found, rest = status.partition(name)
    return int(rest[:_WIDTH].split(maxsplit=1)[0]) if found else 0
