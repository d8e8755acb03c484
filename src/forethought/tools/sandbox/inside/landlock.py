"""Landlock: a process gives up the file system, but for folders that it names, for good.

Works without any right. What it does not restrict (changing modes and owners, looking at names
and sizes, sockets that are not TCP) is up to `seccomp` and to the user that programs run as.
Source: Documentation/userspace-api/landlock.rst of the kernel.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from struct import Struct

from . import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_RIGHTS_SINCE = ((1, 13), (2, 14), (3, 15), (5, 16))
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READABLE = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICES = _MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEV
_TCP = 1 | 2
_ABSTRACT_SOCKETS_AND_SIGNALS = 1 | 2
_NET_SINCE, _SCOPE_SINCE = 4, 6

_RULESET = Struct("QQQ")
_RULE = Struct("=Qi")


def version() -> int:
    """The version of the kernel's Landlock; 0 where there is none."""
    try:
        return kernel.call("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    except OSError:
        return 0


class Ruleset:
    """What may still be used, to be put on a process once. Raises `OSError` without Landlock."""

    def __init__(self) -> None:
        known = version()
        if not known:
            raise OSError("landlock: this kernel does not have it, or it is switched off")
        self._all = (1 << max(bits for since, bits in _RIGHTS_SINCE if since <= known)) - 1
        attributes = _RULESET.pack(
            self._all,
            _TCP if known >= _NET_SINCE else 0,
            _ABSTRACT_SOCKETS_AND_SIGNALS if known >= _SCOPE_SINCE else 0,
        )
        size = 8 if known < _NET_SINCE else 16 if known < _SCOPE_SINCE else 24
        self._descriptor = kernel.call(
            "landlock_create_ruleset", _CREATE_RULESET, attributes, ctypes.c_size_t(size), 0
        )

    def let_read(self, paths: Iterable[str]) -> None:
        """Let files at and below these paths be read and executed."""
        self._let(paths, _READABLE)

    def let_write(self, paths: Iterable[str]) -> None:
        """Let existing files at and below these paths be written to, and read."""
        self._let(paths, _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE)

    def let_do_all(self, paths: Iterable[str]) -> None:
        """Let anything be done at and below these paths, save making devices."""
        self._let(paths, self._all & ~_DEVICES)

    def let_list(self, paths: Iterable[str]) -> None:
        """Let the names at and below these folders be seen."""
        self._let(paths, _READ_DIR)

    def enforce(self) -> None:
        """Put the rules on this process and all that it will start."""
        kernel.call("landlock_restrict_self", _RESTRICT_SELF, self._descriptor, 0)

    def _let(self, paths: Iterable[str], rights: int) -> None:
        for path in paths:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            allowed = rights & self._all & (-1 if is_folder else _ON_FILES)
            rule = _RULE.pack(allowed, descriptor)
            kernel.call("landlock_add_rule", _ADD_RULE, self._descriptor, _BENEATH, rule, 0)
            os.close(descriptor)
