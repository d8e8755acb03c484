"""The walls: a minimal read-only root for a server, and fresh namespaces for each call.

A server's root holds the Python installation, /usr, the library folders and five devices. What
the tool asked to hide (site-packages, the project, the home and the working directory) is
covered where it lies within those. Works as root and, where the kernel lets users make
namespaces, without.
"""

import os
import signal
import socket
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping

from . import kernel, landlock
from .limits import TMP_FILES, TMP_MEGABYTES, Limits, limit_processes
from .seccomp import Filter

_SERVER_NAMESPACES = (
    kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS | kernel.NEW_CGROUP
)  # shared by a server's calls: without sockets and System V calls nothing can be left in them
_NOBODY = 64_999  # a user that owns nothing, on any host
_ASSEMBLY = "/sys"  # exists everywhere, and nothing below it is needed while the root is built
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_MEMORY = "zero"  # maps of it that can be written to share memory that is charged to nobody
_DEVICES = ("null", _MEMORY, "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "shm": "/tmp"}
PACKAGES = "/packages"
"""Where programs find the packages that their environment has."""
_PASSWD = "nobody:x:65534:65534:nobody:/tmp:/bin/sh\n"


class Namespaces:
    """Fresh pid, mount and user namespaces, /tmp and /proc for each call, and few system calls."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._filter = Filter()
        self._with_landlock = landlock.version() > 0
        self._home = -1

    def prepare(self) -> None:
        """Put the next child into a pid namespace, as its first process: all end with it."""
        if os.getuid() == 0:
            kernel.unshare(kernel.NEW_PID, "pid")
            return
        user, group = os.getuid(), os.getgid()
        kernel.unshare(kernel.NEW_USER | kernel.NEW_PID, "user, pid")
        _keep_identity(user, group)

    def clear(self) -> None:
        """Nothing is left: what there was, the zygote's namespaces took with them."""

    def settle(self) -> tuple[str, ...]:
        """Take on the minimal root and the namespaces that the calls of this server share."""
        kernel.unshare(kernel.NEW_MOUNT, "mount")
        packages = _build_root(self._limits.hidden, self._limits.packages)
        kernel.unshare(_SERVER_NAMESPACES, "net, ipc, uts, cgroup")
        socket.sethostname("sandbox")
        kernel.set_dumpable(False)
        kernel.forbid_new_privileges()
        kernel.die_with_parent(signal.SIGKILL)
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        return packages

    def open(self, place: int) -> int:
        """Begin a pid namespace: the next child belongs to it."""
        kernel.unshare(kernel.NEW_PID, "pid")
        return kernel.start_init(place)

    def opened(self) -> None:
        """Return to the own pid namespace, since only from there another one can begin."""
        kernel.enter_namespace(self._home, kernel.NEW_PID)

    def enter(self, place: int) -> None:
        """Own mounts, own user, no rights, few system calls.

        The user stays without a mapping: the program is `nobody`, and that saves three files.
        """
        kernel.unshare(kernel.NEW_MOUNT, "mount")
        options = f"size={TMP_MEGABYTES}m,nr_inodes={TMP_FILES},mode=1777"
        kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.NO_SUID | kernel.NO_DEV, options)
        kernel.mount("proc", "/proc", "proc", kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV)
        os.chdir("/tmp")
        if os.getuid() == 0:
            # Limits on processes do not bind root, whatever namespace it is in.
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        kernel.unshare(kernel.NEW_USER, "user")
        limit_processes(self._limits)
        kernel.drop_capabilities()
        kernel.set_dumpable(True)
        if self._with_landlock:
            _add_landlock()
        self._filter.install()

    def users(self) -> Mapping[int, int]:
        """None: a call's processes are those of its pid namespace."""
        return {}

    def overfull(self, place: int, processes: Collection[int]) -> bool:
        """Never: the kernel gives /tmp no more room than it has."""
        return False

    def close(self, place: int, others: Collection[int]) -> None:
        """Nothing is left once the init is gone: mounts and processes went with it."""


def _add_landlock() -> None:
    """Say once more what the mounts say already, in case those have a hole."""
    rules = landlock.Ruleset()
    rules.let_read(("/",))
    rules.let_write(f"/dev/{device}" for device in _DEVICES if device != _MEMORY)
    rules.let_do_all(("/tmp",))
    rules.enforce()


def _keep_identity(user: int, group: int) -> None:
    kernel.set_dumpable(True)  # else the kernel does not let a process write its own maps
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        _write(f"/proc/self/{name}", line)


def _build_root(hidden: Iterable[str], packages: Iterable[str]) -> tuple[str, ...]:
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tmpfs", _ASSEMBLY, "tmpfs", kernel.NO_SUID, "mode=0755,size=1m")
    trees = [path for path in _SYSTEM if os.path.isdir(path)]
    trees += sorted({sys.base_prefix, sys.base_exec_prefix} - set(trees))
    mirrored = [path for path in trees if _mirror(path)]
    for path in hidden:
        if _covers_only_itself(path, mirrored):
            kernel.mount("tmpfs", _ASSEMBLY + path, "tmpfs", options="mode=0755,size=4k")
            kernel.lock_mount(_ASSEMBLY + path, recursive=False)
    shown = tuple(_show_packages(path, place) for place, path in enumerate(packages))
    _furnish()
    kernel.pivot_root(_ASSEMBLY)
    kernel.lock_mount("/", recursive=False)
    return shown


def _show_packages(path: str, place: int) -> str:
    """Packages have a path of their own, that says nothing of the host."""
    inside = f"{PACKAGES}/{place}"
    os.makedirs(_ASSEMBLY + inside)
    kernel.mount(path, _ASSEMBLY + inside, flags=kernel.BIND | kernel.RECURSIVE)
    kernel.lock_mount(_ASSEMBLY + inside, recursive=True)
    return inside


def _mirror(path: str) -> bool:
    """Show a host folder at its own path; False where that was a link or is shown already."""
    target = _ASSEMBLY + path
    if os.path.exists(target):
        return False
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return False
    os.makedirs(target)
    kernel.mount(path, target, flags=kernel.BIND | kernel.RECURSIVE)
    kernel.lock_mount(target, recursive=True)
    return True


def _covers_only_itself(path: str, trees: Iterable[str]) -> bool:
    library = sysconfig.get_path("stdlib")
    within = any(path.startswith(tree + "/") for tree in trees)
    return within and os.path.isdir(_ASSEMBLY + path) and not f"{library}/".startswith(path + "/")


def _furnish() -> None:
    for folder in ("dev", "etc", "proc", "tmp"):
        os.mkdir(f"{_ASSEMBLY}/{folder}", 0o755)
    for device in _DEVICES:
        _write(f"{_ASSEMBLY}/dev/{device}", "")
        kernel.mount(f"/dev/{device}", f"{_ASSEMBLY}/dev/{device}", flags=kernel.BIND)
        kernel.lock_device(f"{_ASSEMBLY}/dev/{device}")
    for name, aim in _LINKS.items():
        os.symlink(aim, f"{_ASSEMBLY}/dev/{name}")
    _write(f"{_ASSEMBLY}/etc/passwd", _PASSWD)
    kernel.mount("proc", f"{_ASSEMBLY}/proc", "proc", kernel.NO_SUID | kernel.NO_DEV)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)
