"""The walls of the tiers `landlock-uid` and `landlock`, for hosts that allow no namespaces.

Each call may read the system's libraries and Python and write to a folder of its own, by
Landlock; has no sockets, by seccomp; and, where the server is root, is a user of its own, which
keeps calls and the host apart and lets its processes be counted and ended together. Without
root it is the server's user, so that it may neither start processes nor touch any other.

Not covered: the names of files, which can be seen, and a limit on room for files that holds at
every moment (it is looked at up to twenty times a second).
"""

import os
import signal
import socket
import sys
import sysconfig
from collections.abc import Collection, Mapping
from contextlib import suppress

from . import kernel, landlock, memory, scratch
from .landlock import Ruleset
from .limits import TMP_FILES, TMP_MEGABYTES, Limits, limit_processes
from .readable import apart, refuse_closed
from .seccomp import Filter

_IN_MEMORY, _ON_DISK = "/dev/shm", "/tmp"
_ROOM = 1 << 30  # in memory, files are made and removed far faster; if there is room for many

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/ld.so.cache")
_MEMORY = "/dev/zero"  # maps of it that can be written to share memory that is charged to nobody
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
_SLOTS = 512  # users that one server has for its calls
_FIRST_USER = 1 << 30
_FIRST_SMALL_USER = 20_000
_RANGES = 80


class Fence:
    """Landlock and seccomp for each call; a user for each call where this is root."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._with_users = limits.tier == "landlock-uid"
        self._folder = f"{_roomy()}/forethought-{os.urandom(8).hex()}"
        self._filter = Filter(alone=not self._with_users)
        self._first_user = 0
        self._slots = dict[int, int]()
        self._shared: Ruleset
        self._trees: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Make the folder for the calls' folders, and reserve users that nobody else has."""
        if self._with_users and os.getuid() != 0:
            raise PermissionError("only root can give each program its own user")
        if not landlock.version():
            raise OSError("this kernel has no Landlock, or it is switched off")
        kernel.adopt_orphans()
        if self._with_users:
            self._first_user = _reserve_users()
        os.mkdir(self._folder, 0o711)

    def clear(self) -> None:
        """End whatever is left of the calls of a zygote that is gone, and remove their folder."""
        if self._with_users:
            users = range(self._first_user, self._first_user + _SLOTS)
            found = {memory.read(int(n)).user for n in os.listdir("/proc") if n.isdigit()}
            for user in found.intersection(users):
                _end_user(user, users[-1] + 1)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        scratch.remove(self._folder)

    def settle(self) -> tuple[str, ...]:
        """Choose what programs may read. Raises `PermissionError` if they could not read Python."""
        kernel.adopt_orphans()
        kernel.set_dumpable(False)
        kernel.forbid_new_privileges()
        self._shared = Ruleset()
        packages = self._limits.packages
        trees = [path for path in _SYSTEM if os.path.exists(path)]
        trees += sorted({sys.base_prefix, sys.base_exec_prefix} - {"/usr"})
        if self._with_users:
            for path in (sysconfig.get_path("stdlib"), *packages):
                refuse_closed(path)
        readable = apart(trees, packages, self._limits.hidden)
        self._trees = (*trees, *packages)
        self._shared.let_read(readable.read)
        self._shared.let_list(readable.list)
        self._shared.let_read((_MEMORY,))
        self._shared.let_write(_DEVICES)
        self._shared.let_do_all((self._folder,))
        return packages

    def open(self, place: int) -> int:
        """Make the call's folder, and choose its user."""
        slot = next(n for n in range(_SLOTS) if n not in self._slots.values())
        self._slots[place] = slot
        folder = self._folder_of(place)
        os.mkdir(folder, 0o700)
        if self._with_users:
            os.chown(folder, self._first_user + slot, self._first_user + slot)
        return 0

    def opened(self) -> None:
        """Nothing was changed."""

    def enter(self, place: int) -> None:
        """Own folder, own user if there is one, no rights, few files, few system calls."""
        folder = self._folder_of(place)
        os.chdir(folder)
        os.environ.update(HOME=folder, TMPDIR=folder)
        if self._with_users:
            user = self._first_user + self._slots[place]
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            limit_processes(self._limits)
        kernel.drop_capabilities()
        kernel.set_dumpable(True)
        kernel.die_with_parent(signal.SIGKILL)
        # Two layers, and only what both allow: the many rules that all calls share are made once.
        own = Ruleset()
        own.let_read((*self._trees, _MEMORY))
        own.let_write(_DEVICES)
        own.let_do_all((folder,))
        self._shared.enforce()
        own.enforce()
        self._filter.install()

    def users(self) -> Mapping[int, int]:
        """The user of each call."""
        if not self._with_users:
            return {}
        return {self._first_user + slot: place for place, slot in self._slots.items()}

    def overfull(self, place: int, processes: Collection[int]) -> bool:
        """Whether the call's folder has more in it than a call may have, or had and still holds."""
        folder, most = self._folder_of(place), TMP_MEGABYTES << 20
        if scratch.exceeds(folder, most, TMP_FILES):
            return True
        if not self._with_users:
            return scratch.nameless(folder, processes, most) > most
        with kernel.files_of(self._first_user + self._slots[place]):
            return scratch.nameless(folder, processes, most) > most

    def close(self, place: int, others: Collection[int]) -> None:
        """End every process of the call's user, and remove its folder."""
        user = self._first_user + self._slots[place]
        while self._with_users and (left := self._orphans(user, others)):
            _end_user(user, self._first_user + _SLOTS)
            for orphan in left:
                os.waitpid(orphan, 0)
        scratch.remove(self._folder_of(place))
        del self._slots[place]

    def _folder_of(self, place: int) -> str:
        return f"{self._folder}/{place}"

    def _orphans(self, user: int, others: Collection[int]) -> list[int]:
        """Once a call's child is gone, what it leaves has this process for a parent, in the end."""
        descriptor = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
        try:
            children = {int(child) for child in os.read(descriptor, 1 << 16).split()}
        finally:
            os.close(descriptor)
        return [child for child in children - set(others) if memory.read(child).user == user]


def _roomy() -> str:
    """Where the calls' folders go."""
    if not os.access(_IN_MEMORY, os.W_OK | os.X_OK):
        return _ON_DISK
    found = os.statvfs(_IN_MEMORY)
    return _IN_MEMORY if found.f_bavail * found.f_frsize >= _ROOM else _ON_DISK


def _reserve_users() -> int:
    """Users that no other server has: a name that only one process can hold says so."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        known = max(int(line.split()[0]) + int(line.split()[2]) for line in file)
    first = _FIRST_USER if known >= _FIRST_USER * 2 else _FIRST_SMALL_USER
    begin = os.getpid() % _RANGES
    for place in [*range(begin, _RANGES), *range(begin)]:
        users = first + place * (_SLOTS + 1)
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            lock.bind(f"\0forethought-users-{users}")
        except OSError:
            lock.close()
            continue
        lock.detach()  # held until this process ends
        return users
    raise OSError(f"all {_RANGES} ranges of users are taken by other servers")


def _end_user(user: int, spare: int) -> None:
    """Kill all processes of a user at once, from one that none of them may kill.

    It acts as that user, but is otherwise the user `spare`, whom nobody else is.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(spare, user, spare)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
