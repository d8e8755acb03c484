"""Linux system calls that Python does not offer: namespaces, mounts, capabilities, processes.

x86-64 only. Every function raises `OSError` that names the call.
"""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager
from signal import SIGCHLD
from typing import Any

NEW_CGROUP = 0x02000000
NEW_IPC = 0x08000000
NEW_MOUNT = 0x00020000
NEW_NET = 0x40000000
NEW_PID = 0x20000000
NEW_USER = 0x10000000
NEW_UTS = 0x04000000
NEW_TIME = 0x00000080
_SHARE_MEMORY = 0x00000100

READ_ONLY = 0x1
NO_SUID = 0x2
NO_DEV = 0x4
NO_EXEC = 0x8
BIND = 0x1000
RECURSIVE = 0x4000
PRIVATE = 0x40000

_ATTR_LOCKED_DOWN = READ_ONLY | NO_SUID | NO_DEV
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_DETACH = 2

_SYS_CAPSET = 126
_SYS_PIVOT_ROOT = 155
_SYS_SECCOMP = 317
_SYS_MOUNT_SETATTR = 442

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_CAPABILITY_VERSION_3 = 0x20080522
_NO_CAPABILITIES = ctypes.create_string_buffer(24)
_CAPABILITY_HEADER = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)

_LIBC = ctypes.CDLL(None, use_errno=True)
_STACKS = 64
_STACK_BYTES = 4096
_INIT_STACKS = ctypes.create_string_buffer((_STACKS + 1) * _STACK_BYTES)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int, what: str) -> None:
    """Move this process (for NEW_PID: its children) into new namespaces, named by `what`."""
    _check(_LIBC.unshare(flags), f"unshare({what})")


def enter_namespace(descriptor: int, flags: int) -> None:
    """Join the namespace that `descriptor` refers to."""
    _check(_LIBC.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount `source` at `target`."""
    _check(
        _LIBC.mount(
            source.encode(),
            target.encode(),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        ),
        f"mount({target})",
    )


def lock_mount(target: str, *, recursive: bool) -> None:
    """Make a mount, and on demand those below it, read-only without set-uid and devices."""
    _set_attributes(target, _ATTR_LOCKED_DOWN, _AT_RECURSIVE if recursive else 0)


def lock_device(target: str) -> None:
    """Make a device's mount read-only: it can still be written to, but not given other times."""
    _set_attributes(target, READ_ONLY, 0)


def _set_attributes(target: str, flags: int, depth: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    call("mount_setattr", _SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), depth, attributes, size)


def pivot_root(target: str) -> None:
    """Make `target` the root and let go of the old one."""
    os.chdir(target)
    call("pivot_root", _SYS_PIVOT_ROOT, b".", b".")
    _check(_LIBC.umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def install_filter(program: Any) -> None:
    """Install a packed seccomp filter on this process, for good."""
    call("seccomp", _SYS_SECCOMP, 1, 0, program)


def drop_capabilities() -> None:
    """Give up every capability. What the bounding set still holds, no_new_privs keeps out."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    call("capset", _SYS_CAPSET, _CAPABILITY_HEADER, _NO_CAPABILITIES)


@contextmanager
def files_of(user: int) -> Generator[None]:
    """Be this user as far as files go, and what processes have open. Only for root."""
    _LIBC.setfsgid(user)
    _LIBC.setfsuid(user)
    try:
        yield
    finally:
        _LIBC.setfsuid(0)
        _LIBC.setfsgid(0)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process signal `number` when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def set_dumpable(value: bool) -> None:
    """Whether processes of the same user may look into this one."""
    _prctl(_PR_SET_DUMPABLE, int(value))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Make set-uid and file capabilities without effect from here on."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def start_init(place: int) -> int:
    """Start a process that only sleeps, sharing this process's memory; return its pid.

    The first process of a pid namespace ends the whole namespace with it. This one costs no
    page tables: it calls `pause` on a small stack, chosen by `place`. Two of one stack do each
    other no harm, since they never return. Nothing inside can touch the memory it shares, because
    that is not dumpable, and the caller must have no signal handler, since a handler would run in
    it.
    """
    end = ctypes.addressof(_INIT_STACKS) + (place % _STACKS + 1) * _STACK_BYTES
    sleep = ctypes.cast(_LIBC.pause, ctypes.c_void_p)
    stack = ctypes.c_void_p(end & ~0xF)
    return _check(_LIBC.clone(sleep, stack, _SHARE_MEMORY | SIGCHLD, None), "clone")


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    result = _LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero)
    _check(result, f"prctl({option})")


def call(what: str, number: int, *arguments: Any) -> int:
    """Make the system call `number`; `what` names it in the error."""
    return _check(_LIBC.syscall(number, *arguments), what)
