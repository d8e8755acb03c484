"""A real sandbox, opened once for a test session and asked by tests that know no event loop."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from forethought.core.messages import ToolCall, ToolReply
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox import inside
from forethought.tools.sandbox.inside import landlock
from forethought.tools.sandbox.server import Launch, start_server
from forethought.tools.settings import PythonSettings

SYSTEM_PYTHON = "/usr/bin/python3"
LOWER = {"landlock-uid": "container", "landlock": "user"}
"""Tiers below the first, and with which of the shim's modes they are forced."""

SMALL = PythonSettings(
    servers=2,
    calls_per_server=4,
    wall_seconds=2.0,
    cpu_seconds=5,
    memory_mb=160,
    processes=16,
)


@dataclass(frozen=True)
class Sandbox:
    """An open Python tool and the event loop that it lives in."""

    runner: asyncio.Runner
    tool: PythonTool

    def run(self, code: str) -> ToolReply:
        return self.send(json.dumps({"code": code}))

    def send(self, arguments: str, name: str = "python") -> ToolReply:
        call = ToolCall(id="call_0", name=name, arguments=arguments)
        return self.runner.run(self.tool.call(call))


@dataclass(frozen=True)
class Host:
    """What a program must not reach: a file, a variable, a process, four sockets."""

    secret: str
    folder: Path
    victim: subprocess.Popen[bytes]
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    named: socket.socket

    def untouched(self) -> bool:
        """Whether the file, its mode and the process are as they were."""
        canary = self.folder / "canary"
        as_it_was = canary.read_text() == self.secret and canary.stat().st_mode & 0o777 == 0o644
        return as_it_was and self.victim.poll() is None

    def fill_in(self, program: str) -> str:
        known = {
            "CANARY_PATH": repr(str(self.folder / "canary")),
            "OUTSIDE": repr(str(self.folder)),
            "VICTIM": str(self.victim.pid),
            "TRAINER": str(os.getpid()),
            "TCP_PORT": str(self.tcp.getsockname()[1]),
            "UDP_PORT": str(self.udp.getsockname()[1]),
            "ABSTRACT": repr(self.abstract.getsockname()),
            "NAMED": repr(self.named.getsockname()),
        }
        for name, value in known.items():
            program = program.replace(name, value)
        return program


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    secret = secrets.token_hex(16)
    folder = tmp_path_factory.mktemp("outside")
    (folder / "canary").write_text(secret)
    (folder / "canary").chmod(0o644)
    os.environ["FORETHOUGHT_SECRET"] = secret
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as named,
        tempfile.TemporaryDirectory(dir="/tmp") as open_to_all,
        subprocess.Popen(["sleep", "600"], env={"SECRET": secret}) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0forethought-{secrets.token_hex(8)}")
        Path(open_to_all).chmod(0o755)
        named.bind(f"{open_to_all}/socket")
        (Path(open_to_all) / "socket").chmod(0o666)
        yield Host(secret, folder, victim, tcp, udp, abstract, named)
        victim.kill()
    del os.environ["FORETHOUGHT_SECRET"]


@pytest.fixture(scope="session")
def sandbox(host):
    with asyncio.Runner() as runner:
        tool = runner.run(PythonTool(SMALL).__aenter__())
        yield Sandbox(runner=runner, tool=tool)
        runner.run(tool.__aexit__(None, None, None))


def why_not_lower():
    """Why the lower tiers cannot be forced here; empty if they can."""
    if os.getuid() != 0:
        return "only root can become somebody with fewer rights"
    if not landlock.version():
        return "this kernel has no Landlock"
    test = [SYSTEM_PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if not Path(SYSTEM_PYTHON).exists() or subprocess.run(test, check=False).returncode:
        return f"{SYSTEM_PYTHON} is not Python 3.11 or later"
    return ""


@pytest.fixture(scope="session")
def with_fewer_rights():
    """A function from one of the shim's modes to what starts servers with those rights."""
    if why := why_not_lower():
        pytest.skip(why)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copytree(Path(inside.__file__).parent, Path(name) / "inside")
        shim = shutil.copy(Path(__file__).parent / "shim.py", name)

        def start(mode):
            command = (SYSTEM_PYTHON, shim, mode)
            return partial(start_server, launch=Launch(command=command, folder=Path(name)))

        yield start


@dataclass(frozen=True)
class OpenTier:
    """An open Python tool in one tier, and what its programs end as."""

    name: str
    limit: float
    runner: asyncio.Runner
    tool: PythonTool

    def run(self, code: str):
        return self.runner.run(self.tool.opened.backend.run(code))


@pytest.fixture(scope="session", params=["namespaces", *LOWER])
def tier(request, host):
    name = request.param
    limits = SMALL.model_copy(update={"tier": name, "wall_seconds": 1.0, "servers": 1})
    if name == "namespaces":
        tool = PythonTool(limits)
    else:
        start = request.getfixturevalue("with_fewer_rights")(LOWER[name])
        tool = PythonTool(limits.model_copy(update={"python": SYSTEM_PYTHON}), start)
    with asyncio.Runner() as runner:
        runner.run(tool.__aenter__())
        yield OpenTier(name, limits.wall_seconds, runner, tool)
        runner.run(tool.__aexit__(None, None, None))
