"""The same sandbox without root, where the kernel lets users make namespaces.

The server is started by hand, as another user with the system's Python, from a copy of its
folder that this user may read.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from forethought.tools.sandbox import inside
from forethought.tools.sandbox.inside.frames import Ask, End, Request, take_report
from forethought.tools.sandbox.inside.limits import Limits
from forethought.tools.sandbox.server import BOOT

NOBODY = 65_534
PYTHON = "/usr/bin/python3"
LIMITS = Limits(
    tier="namespaces",
    wall_seconds=2.0,
    cpu_seconds=2,
    memory_mb=128,
    processes=8,
    idle_seconds=60.0,
    preload=(),
    packages=(),
    hidden=(),
)


def is_recent(python):
    if not Path(python).exists():
        return False
    code = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else"),
    pytest.mark.skipif(not is_recent(PYTHON), reason=f"{PYTHON} is not 3.11 or later"),
]


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copytree(Path(inside.__file__).parent, Path(name) / "inside")
        yield name


@pytest.fixture
def ask(folder):
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(
        [PYTHON, "-P", "-s", "-S", "-c", BOOT],
        env={"PATH": "/usr/bin:/bin"},
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.PIPE,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
    )
    with server, ours:
        with theirs, server.stdin as known:
            arguments = (folder, str(theirs.fileno()), str(os.getpid()), LIMITS.to_json())
            known.write("\n".join(arguments).encode())
        buffer = bytearray()

        def next_report():
            while (report := take_report(buffer)) is None:
                data = ours.recv(1 << 16)
                assert data, "the server ended"
                buffer.extend(data)
            return report

        def ask_server(code):
            ours.sendall(Request(Ask.RUN, 1, 0, code.encode()).pack())
            return next_report()

        ready = next_report()
        assert ready.end is End.READY, ready.err
        yield ask_server
    assert server.returncode == 0


def test_programs_run_without_root(ask):
    report = ask("import os\nprint(os.getuid(), sorted(os.listdir('/')), os.getcwd())")
    assert report.end is End.EXITED
    assert report.out.startswith(b"65534 [")
    assert b"'root'" not in report.out
    assert report.out.endswith(b"/tmp\n")


def test_walls_and_limits_hold_without_root(ask):
    code = (
        "import os, signal, socket\nprint(len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "def attempt(action, *arguments):\n"
        "    try: print('ESCAPED', action(*arguments))\n"
        "    except Exception as error: print(type(error).__name__)\n"
        "attempt(socket.socket)\nattempt(open, '/usr/mine', 'w')\nattempt(open, '/proc/1/mem')\n"
        "children = 0\ntry:\n    while children < 20:\n        if not os.fork(): signal.pause()\n"
        "        children += 1\nexcept OSError: print(children)"
    )
    report = ask(code)
    assert report.out.split() == [b"2", *[b"PermissionError", b"OSError", b"PermissionError"], b"7"]


def test_time_and_memory_are_limited_without_root(ask):
    assert ask("while True: pass").end is End.TIMEOUT
    held = (
        "import os, time\nfor _ in range(4):\n    if not os.fork():\n        x = b'x' * (60 << 20)"
    )
    assert ask(f"{held}\n        time.sleep(9)\ntime.sleep(9)").end is End.MEMORY
    assert ask("print(6 * 7)").out == b"42\n"
