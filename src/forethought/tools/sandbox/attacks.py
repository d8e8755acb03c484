"""The programs that the sandbox attacks itself with, and the bait that they try to take."""

import secrets
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

REACH_OUT = """
import ctypes, os, resource, signal, socket
libc = ctypes.CDLL(None)
def tried(action):
    try:
        print(action())
    except (OSError, ValueError) as error:
        print(type(error).__name__)
def tcp():
    return socket.create_connection(("127.0.0.1", {tcp}), 0.2)
def udp():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp}))
def abstract():
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", {abstract!r})
def past(name):
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", name)
def write(folder):
    name = folder + "/{name}"
    open(name, "w").close()
    os.remove(name)
    return "WROTE " + folder
def raised():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    return "RAISED"
tried(tcp)
tried(udp)
tried(abstract)
tried(lambda: past({abstract!r}))
tried(lambda: past({named!r}))
tried(raised)
for action in (
    lambda: open({canary!r}).read(),
    lambda: os.chmod({canary!r}, 0o604),
    lambda: os.truncate({canary!r}, 0),
    lambda: dict(os.environ),
    lambda: resource.prlimit({other}, resource.RLIMIT_NOFILE, (7, 7)),
    lambda: libc.ptrace(16, {victim}, 0, 0),
):
    tried(action)
for folder in ("/", "/usr", "/etc", "/dev", "/var", "/home", {outside!r}):
    tried(lambda: write(folder))
try:
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
except OSError:
    processes = [{victim}]
for process in processes:
    tried(lambda: open(f"/proc/{{process}}/environ").read())
    tried(lambda: open(f"/proc/{{process}}/cmdline").read())
if {victim} not in (1, os.getpid()):
    tried(lambda: os.kill({victim}, signal.SIGKILL))
if libc.unshare(0x10000000) == 0:
    print("NAMESPACE")
"""

FORK = """
import os, signal
children = 0
try:
    while children < {processes} + 8:
        if not os.fork():
            signal.pause()
        children += 1
except OSError:
    pass
print(children)
"""

ALLOCATE = "held = b'x' * ({memory_mb} * 2 << 20)"

STAY = """
import ctypes, os, signal, time
for folder in (".", "/tmp", "/dev/shm"):
    try:
        open(folder + "/{name}", "w").close()
    except OSError:
        pass
try:
    child = os.fork()
except OSError:
    child = -1
if not child:
    os.setsid()
    ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)
    print("staying", flush=True)
    signal.pause()
time.sleep(0.02)
"""

LOOK = """
import os
print([f for f in (".", "/tmp", "/dev/shm") if os.path.exists(f + "/{name}")])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bait:
    """What lies outside of the sandbox for its programs to reach."""

    token: str
    canary: Path
    victim: subprocess.Popen[bytes]
    other: subprocess.Popen[bytes]
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    named: socket.socket

    @property
    def taken(self) -> dict[str, bool]:
        """Each attack whose effect can be seen out here, and whether it is seen."""
        return {
            "a TCP connection to the host": _received(self.tcp),
            "a UDP message to the host": _received(self.udp),
            "a message to an abstract socket": _received(self.abstract),
            "a message to a socket with a path": _received(self.named),
            "killing a process of the host": self.victim.poll() is not None,
            "changing a limit of a process of the host": self._was_limited(),
            "changing a file of the host": (
                self.canary.stat().st_mode & 0o777 != 0o644
                or self.canary.read_text(encoding="utf-8") != self.token
            ),
        }

    def reach_out(self) -> str:
        """The program that tries all of it."""
        return REACH_OUT.format(
            tcp=self.tcp.getsockname()[1],
            udp=self.udp.getsockname()[1],
            abstract=self.abstract.getsockname(),
            named=self.named.getsockname(),
            name="forethought-probe",
            canary=str(self.canary),
            outside=str(self.canary.parent),
            victim=self.victim.pid,
            other=self.other.pid,
        )

    def _was_limited(self) -> bool:
        limits = Path(f"/proc/{self.other.pid}/limits").read_text(encoding="ascii")
        (line,) = (each for each in limits.splitlines() if each.startswith("Max open files"))
        return line.split()[3] == "7"


@contextmanager
def bait() -> Generator[Bait]:
    """Lay it out, and take it in again."""
    token = secrets.token_hex(8)
    with ExitStack() as stack:
        # Not just anywhere: a socket's path must be short.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        folder.chmod(0o755)
        canary = folder / "canary"
        canary.write_text(token, encoding="utf-8")
        canary.chmod(0o644)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        abstract.bind(f"\0forethought-{token}")
        named = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        named.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o666)
        victim, other = (stack.enter_context(_bystander(token)) for _ in range(2))
        yield Bait(
            token=token,
            canary=canary,
            victim=victim,
            other=other,
            tcp=tcp,
            udp=udp,
            abstract=abstract,
            named=named,
        )


@contextmanager
def _bystander(token: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of the host that only waits, with a secret in its environment."""
    command = ("/bin/sh", "-c", "read line")
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={"CANARY": token}) as process:
        try:
            yield process
        finally:
            process.kill()


def _received(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True
