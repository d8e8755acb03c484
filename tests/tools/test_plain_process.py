"""The tier `none`: no walls, but limits, and nothing left behind."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forethought.core.messages import ToolCall, ToolStatus
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.inside import scratch
from forethought.tools.sandbox.server import _ENVIRONMENT
from forethought.tools.sandbox.tiers import CONSENT
from forethought.tools.settings import PythonSettings
from tools.test_supervision import becomes, named

SETTINGS = PythonSettings(tier="none", servers=1, wall_seconds=2.0, memory_mb=160)


@pytest.fixture(autouse=True)
def consent(monkeypatch):
    monkeypatch.setenv(CONSENT, "1")


def run_all(*programs):
    async def run():
        async with PythonTool(SETTINGS) as tool:
            calls = (
                ToolCall(id=str(n), name="python", arguments=json.dumps({"code": code}))
                for n, code in enumerate(programs)
            )
            return [await tool.call(call) for call in calls]

    return asyncio.run(run())


def test_programs_run_in_an_empty_folder_that_goes_with_them():
    first, second = run_all(
        "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')\nos.listdir()",
        "import os\nos.getcwd(), os.listdir()",
    )
    assert first.text == "['a']"
    assert "'/tmp/programs-" in second.text
    assert second.text.endswith(", [])")
    assert not Path(second.text.split("'")[1]).exists()


def test_the_environment_is_empty_there_too(host):
    (reply,) = run_all("import os\nsorted(os.environ)")
    assert reply.text == str(sorted(_ENVIRONMENT))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("while True: pass", ToolStatus.TIMEOUT),
        ("bytearray(1 << 40)", ToolStatus.MEMORY),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", ToolStatus.TRUNCATED),
        ("import os\nos.abort()", ToolStatus.MODEL_ERROR),
        ("import os, time\nos.fork() or time.sleep(60)\nprint(1)", ToolStatus.OK),
        ("import os, time\nif not os.fork():\n  os.setsid(); time.sleep(60)", ToolStatus.OK),
    ],
)
def test_limits_hold_and_the_next_call_is_well(code, status):
    reply, after = run_all(code, "6 * 7")
    assert reply.status is status
    assert after.text == "42"


@pytest.mark.parametrize(
    "leaving",
    [
        "",
        "os.setsid()",
        "os.setsid(); os.fork() and os._exit(0)",
        "os.setsid(); os.fork() and time.sleep(300); os.setsid()",
    ],
)
def test_no_process_outlives_its_program(leaving):
    name = f"left-{os.getpid()}"
    code = (
        "import os, time\nr, w = os.pipe()\nif not os.fork():\n"
        f"    {leaving}\n    open('/proc/self/comm', 'w').write('{name}')\n"
        "    os.write(w, b'x')\n    time.sleep(300)\nos.read(r, 1)\nprint('begun')"
    )

    async def run():
        async with PythonTool(SETTINGS) as tool:
            outcome = await tool.opened.backend.run(code)
            return outcome, becomes(lambda: not named(name))

    outcome, gone = asyncio.run(run())
    assert outcome.out == b"begun\n"
    assert gone


def test_a_program_that_kills_its_server_twice_is_to_blame():
    reply, after = run_all("import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(9)", "1")
    assert reply.status is ToolStatus.MODEL_ERROR
    assert reply.text == "[the process was ended by a fault that ended its server]"
    assert after.text == "1"


def test_a_killed_zygote_leaves_no_folder(tmp_path):
    notes = tmp_path / "notes"
    (reply,) = run_all(
        f"import os, time\nopen({str(notes)!r}, 'a').write(os.getcwd() + '\\n')\n"
        "os.kill(os.getppid(), 9)\ntime.sleep(60)"
    )
    assert reply.status is ToolStatus.MODEL_ERROR
    folders = [Path(line) for line in notes.read_text().splitlines()]
    assert len(folders) == 2
    assert not any(folder.parent.exists() for folder in folders)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_that_its_owner_closed_is_removed():
    script = (
        f"{Path(scratch.__file__).read_text()}\n"
        "import tempfile\nos.setuid(65534)\nfolder = tempfile.mkdtemp()\n"
        "os.makedirs(f'{folder}/a/b')\nos.chmod(f'{folder}/a', 0)\nos.chmod(folder, 0)\n"
        "remove(folder)\nprint(os.path.exists(folder))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
