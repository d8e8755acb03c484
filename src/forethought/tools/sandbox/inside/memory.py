"""How much memory each call's processes hold together."""

import os
from collections.abc import Mapping

_INTERESTING = (b"PPid:", b"RssAnon:", b"RssShmem:")


def own_kilobytes() -> int:
    """The private memory of this process, which its children share until they write to it."""
    return _read(os.getpid())[1]


def kilobytes_by_call(roots: Mapping[int, int], shared: int) -> dict[int, int]:
    """Kilobytes held per call. `roots` maps a first process to its call.

    Every process below a root counts: what it holds beyond `shared`, the memory inherited from
    the zygote. Both values are readable for any process, so that none can hide.
    """
    processes = {int(name): _read(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    totals = dict.fromkeys(roots.values(), 0)
    for process, (_, private, public) in processes.items():
        call = _call_of(process, processes, roots)
        if call is not None:
            totals[call] += max(0, private - shared) + public
    return totals


def _call_of(
    process: int, processes: Mapping[int, tuple[int, int, int]], roots: Mapping[int, int]
) -> int | None:
    while process not in roots:
        if process not in processes:
            return None
        process = processes[process][0]
    return roots[process]


def _read(process: int) -> tuple[int, int, int]:
    """Parent, private and shared kilobytes; zeros for a process that is gone."""
    values = [0, 0, 0]
    try:
        descriptor = os.open(f"/proc/{process}/status", os.O_RDONLY)
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0, 0
    try:
        for line in os.read(descriptor, 4096).splitlines():
            key, *rest = line.split(maxsplit=2)
            if key in _INTERESTING:
                values[_INTERESTING.index(key)] = int(rest[0])
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
    return values[0], values[1], values[2]
