"""A real sandbox, opened once for a test session and asked by tests that know no event loop."""

import asyncio
import json
import os
import secrets
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from forethought.core.messages import ToolCall, ToolReply
from forethought.tools.python_tool import PythonTool
from forethought.tools.settings import PythonSettings

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
    """What a program must not reach: a file, a variable, a process, two ports."""

    secret: str
    folder: Path
    victim: subprocess.Popen[bytes]
    tcp: socket.socket
    udp: socket.socket

    def fill_in(self, program: str) -> str:
        known = {
            "CANARY_PATH": repr(str(self.folder / "canary")),
            "OUTSIDE": repr(str(self.folder)),
            "VICTIM": str(self.victim.pid),
            "TRAINER": str(os.getpid()),
            "TCP_PORT": str(self.tcp.getsockname()[1]),
            "UDP_PORT": str(self.udp.getsockname()[1]),
        }
        for name, value in known.items():
            program = program.replace(name, value)
        return program


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    secret = secrets.token_hex(16)
    folder = tmp_path_factory.mktemp("outside")
    (folder / "canary").write_text(secret)
    os.environ["FORETHOUGHT_SECRET"] = secret
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        subprocess.Popen(["sleep", "600"], env={"SECRET": secret}) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        yield Host(secret=secret, folder=folder, victim=victim, tcp=tcp, udp=udp)
        victim.kill()
    del os.environ["FORETHOUGHT_SECRET"]


@pytest.fixture(scope="session")
def sandbox(host):
    with asyncio.Runner() as runner:
        tool = runner.run(PythonTool(SMALL).__aenter__())
        yield Sandbox(runner=runner, tool=tool)
        runner.run(tool.__aexit__(None, None, None))
