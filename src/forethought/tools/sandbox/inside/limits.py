"""What one call may use, and how those limits are put on a process."""

import json
import os
import resource
from typing import NamedTuple

_MEGABYTE = 1 << 20
_SPARE_FOR_TRACEBACK = 32 * _MEGABYTE

_DESCRIPTORS = 256

NOT_PRELOADED = "tool.preload names"
"""Begins what a server says that cannot import what it should: it would fail in every tier."""
TMP_MEGABYTES = 64
"""Room for files, a call."""
TMP_FILES = 4096
"""Files and folders that a call may make."""


class Limits(NamedTuple):
    """The limits of a server's calls, as the tool hands them over when it starts a server.

    `packages` are folders that programs import from besides the standard library, `hidden` ones
    that they must not see.
    """

    tier: str
    wall_seconds: float
    cpu_seconds: int
    memory_mb: int
    processes: int
    idle_seconds: float
    preload: tuple[str, ...]
    packages: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def shares_user(self) -> bool:
        """Whether programs are the server's user, so that the kernel cannot count their threads."""
        return self.tier == "landlock"

    def to_json(self) -> str:
        """The limits as one line of text."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "Limits":
        """Read back what `to_json` wrote."""
        values = json.loads(text)
        return cls(*values[:-3], *map(tuple, values[-3:]))


def volunteer_for_eviction() -> None:
    """Have a host that runs out of memory end programs before it ends anything else."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"800")
    os.close(descriptor)


def limit_family(memory_mb: int) -> None:
    """Limits that a zygote takes on itself and its children inherit.

    Memory is counted on top of what the interpreter has mapped already. The hard limit leaves a
    little more, so that a program out of memory can still say so.
    """
    memory = _mapped_bytes() + memory_mb * _MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory + _SPARE_FOR_TRACEBACK))
    for kind, most in (
        (resource.RLIMIT_FSIZE, TMP_MEGABYTES * _MEGABYTE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_STACK, 8 * _MEGABYTE),
        (resource.RLIMIT_MEMLOCK, _MEGABYTE),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def limit_processes(limits: Limits) -> None:
    """The number of processes; only where the kernel counts them for this call alone."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limits.processes, limits.processes))


def limit_descriptors() -> None:
    """Open files of each process. Not for the zygote, which holds some for every call."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))


def limit_processor(limits: Limits) -> None:
    """Processor time of each process, in a call that is not one of a session's many."""
    cpu = limits.cpu_seconds
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def grant_spare_memory() -> None:
    """Raise the memory limit to its hard value, for the report of a `MemoryError`."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _mapped_bytes() -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 256).split()[0]) * resource.getpagesize()
    finally:
        os.close(descriptor)
