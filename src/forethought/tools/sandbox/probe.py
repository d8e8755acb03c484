"""The sandbox attacks itself before it is used.

Whether an attack succeeded is read from the trusted side wherever that is possible: a connection
that arrived, a process that died, a secret in the output. Programs are only believed when they
incriminate themselves.
"""

import asyncio
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forethought.core.errors import RecipeError
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.settings import PythonSettings

_REACH_OUT = """
import os, socket, signal
def tried(action):
    try:
        print(action())
    except (OSError, ValueError) as error:
        print(type(error).__name__)
def tcp():
    return socket.create_connection(("127.0.0.1", {tcp}), 0.2)
def udp():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp}))
def write(folder):
    name = folder + "/{name}"
    open(name, "w").close()
    os.remove(name)
    return "WROTE " + folder
tried(tcp)
tried(udp)
tried(lambda: open({canary!r}).read())
for folder in ("/", "/usr", "/etc", "/dev", "/var", "/home", {outside!r}):
    tried(lambda: write(folder))
tried(lambda: dict(os.environ))
for process in os.listdir("/proc"):
    if process.isdigit():
        tried(lambda: open(f"/proc/{{process}}/environ").read())
        tried(lambda: open(f"/proc/{{process}}/cmdline").read())
if {victim} > os.getpid():
    tried(lambda: os.kill({victim}, signal.SIGKILL))
"""

_FORK = """
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

_ALLOCATE = "held = b'x' * ({memory_mb} * 2 << 20)"

_STAY = """
import os, signal, time
for folder in ("/tmp", "/dev/shm"):
    open(folder + "/{name}", "w").close()
if not os.fork():
    os.setsid()
    open("/proc/self/comm", "w").write("{name}")
    print("staying", flush=True)
    signal.pause()
time.sleep(0.02)
"""

_LOOK = """
import os
print([f for f in ("/tmp", "/dev/shm") if os.path.exists(f + "/{name}")])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bait:
    """What lies outside of the sandbox for its programs to reach."""

    token: str
    canary: Path
    victim: subprocess.Popen[bytes]
    tcp: socket.socket
    udp: socket.socket

    @property
    def taken(self) -> tuple[str, ...]:
        """The attacks whose effect is seen out here."""
        effects = {
            "a TCP connection to the host": _received(self.tcp),
            "a UDP message to the host": _received(self.udp),
            "killing a process of the host": self.victim.poll() is not None,
        }
        return tuple(attack for attack, succeeded in effects.items() if succeeded)


def check_host(settings: PythonSettings) -> None:
    """Refuse hosts that the sandbox does not know, and weak isolation nobody agreed to."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise RecipeError(
            f"the Python tool runs on x86-64 Linux, not on {sys.platform} {platform.machine()}: "
            "train on such a machine or in a virtual one"
        )
    if settings.isolation == "process" and not settings.allow_weak:
        raise RecipeError(
            'tool.isolation="process" lets programs read files and use the network: set '
            'tool.allow_weak=true if every problem and the model are trusted, or use "namespaces"'
        )


class Runner(Protocol):
    """Runs programs: the open pool, or whatever else is to be attacked."""

    async def run(self, code: str) -> Outcome:
        """Run one program to its end."""
        ...


async def probe(runner: Runner, settings: PythonSettings) -> None:
    """Attack from within, and raise `RecipeError` that names every attack that succeeded."""
    outcome = await runner.run("6 * 7")
    if outcome.out != b"42\n":
        raise RecipeError(
            f"the Python tool's first program, 6 * 7, ended as {outcome.kind} with {outcome.out!r} "
            f"and {outcome.err!r}: raise tool.memory_mb, tool.wall_seconds or tool.cpu_seconds"
        )
    if settings.isolation == "namespaces":
        succeeded = await _attack(runner, settings)
        if succeeded:
            raise RecipeError(
                f"the sandbox does not hold on this host, for it allowed {', '.join(succeeded)}: "
                'use another host, or on trusted problems only tool.isolation="process" with '
                "tool.allow_weak=true"
            )


async def _attack(runner: Runner, settings: PythonSettings) -> tuple[str, ...]:
    with _bait() as bait:
        name = f"left-{secrets.token_hex(4)}"
        reached, forked, held, stayed = await asyncio.gather(
            runner.run(_reach_out(bait)),
            runner.run(_FORK.format(processes=settings.processes)),
            runner.run(_ALLOCATE.format(memory_mb=settings.memory_mb)),
            runner.run(_STAY.format(name=name)),
        )
        looked = await runner.run(_LOOK.format(name=name))
        said = reached.out.decode("utf-8", "replace")
        claims = {
            "reading a file or an environment of the host": bait.token in said,
            "writing outside of /tmp": "WROTE" in said,
            "more processes than tool.processes": _too_many(forked, settings),
            "more memory than tool.memory_mb": held.kind is not Kind.MEMORY,
            "a process that outlives its call": _lives(name) or stayed.kind is not Kind.OK,
            "files that outlive their call": looked.out != b"[]\n",
            "nothing, not even the attacks": reached.kind is not Kind.OK,
        }
        return (*bait.taken, *(claim for claim, succeeded in claims.items() if succeeded))


@contextmanager
def _bait() -> Generator[_Bait]:
    token = secrets.token_hex(8)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        canary = folder / "canary"
        canary.write_text(token, encoding="utf-8")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        victim = subprocess.Popen(
            ("/bin/sh", "-c", "read line"), stdin=subprocess.PIPE, env={"CANARY": token}
        )
        stack.enter_context(victim)
        stack.callback(victim.kill)
        yield _Bait(token=token, canary=canary, victim=victim, tcp=tcp, udp=udp)


def _reach_out(bait: _Bait) -> str:
    return _REACH_OUT.format(
        tcp=bait.tcp.getsockname()[1],
        udp=bait.udp.getsockname()[1],
        name="forethought-probe",
        canary=str(bait.canary),
        outside=str(bait.canary.parent),
        victim=bait.victim.pid,
    )


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


def _too_many(forked: Outcome, settings: PythonSettings) -> bool:
    return not forked.out.strip().isdigit() or int(forked.out) >= settings.processes


def _lives(name: str) -> bool:
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text(encoding="utf-8").strip() == name:
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False
