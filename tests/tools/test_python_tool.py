"""Programs, and what the model reads of them."""

import asyncio

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import ToolCall, ToolStatus
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.tiers import CONSENT
from forethought.tools.settings import PythonSettings

OK, ERROR = ToolStatus.OK, ToolStatus.MODEL_ERROR


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print(1 + 1)", "2"),
        ("1 + 1", "2"),
        ("x = 20\nx + 1", "21"),
        ("print('a')\n'b'", "a\n'b'"),
        ("x = 5", "[no output]"),
        ("None", "[no output]"),
        ("", "[no output]"),
        ("# only a comment", "[no output]"),
        ("print('é', end='')", "é"),
        ("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out')", "out\nout\nerr"),
        ("for i in range(3):\n    i", "[no output]"),
        ("from __future__ import annotations\ndef f(x: y): ...\nf.__annotations__", "{'x': 'y'}"),
        ("import sys\nsys.exit()", "[no output]"),
        ("import sys\nsys.exit(0)", "[no output]"),
        ("import os\nos.getcwd(), os.listdir()", "('/tmp', [])"),
        ("__name__", "'__main__'"),
        ("import sys\nsys.argv", "['main.py']"),
        ("import sys\nsys.stdin.read()", "''"),
        ("import atexit\natexit.register(print, 'bye')\nprint('hi')", "hi\nbye"),
        ("import threading\nthreading.Thread(target=print, args=('late',)).start()", "late"),
        ("def f(): return 1\nimport inspect\ninspect.getsource(f)", "'def f(): return 1\\n'"),
        ("open('a', 'w').write('x')\nopen('a').read()", "'x'"),
        ("open('helper.py', 'w').write('y = 3')\nimport helper\nhelper.y", "3"),
        ("print('\\ud800')", "\\ud800"),
    ],
)
def test_a_program_shows_what_it_prints_and_the_value_of_its_last_expression(sandbox, code, text):
    reply = sandbox.run(code)
    assert (reply.text, reply.status) == (text, OK)


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import subprocess\nsubprocess.check_output('echo hi', shell=True)", "b'hi\\n'"),
        ("import subprocess, sys\nsubprocess.check_output([sys.executable, '-c', '1'])", "b''"),
        ("import asyncio\nasyncio.run(asyncio.sleep(0.01, 'slept'))", "'slept'"),
        (
            "from multiprocessing import get_context\n"
            "with get_context('fork').Pool(2) as pool:\n    print(pool.map(abs, [-1, -2]))",
            "[1, 2]",
        ),
        (
            "from multiprocessing import Pipe\none, other = Pipe()\none.send([1])\nother.recv()",
            "[1]",
        ),
        (
            "import asyncio\nasync def main():\n"
            "    child = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n"
            "    return (await child.communicate())[0]\nasyncio.run(main())",
            "b'hi\\n'",
        ),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'abc'))", "3"),
        ("import sqlite3\nsqlite3.connect('a.db').execute('select 1').fetchall()", "[(1,)]"),
        ("import pickle, decimal\npickle.loads(pickle.dumps(decimal.Decimal(1)))", "Decimal('1')"),
        (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "with ThreadPoolExecutor(4) as pool: print(list(pool.map(abs, [-1])))",
            "[1]",
        ),
    ],
)
def test_the_standard_library_works_inside(sandbox, code, ending):
    reply = sandbox.run(code)
    assert (reply.text, reply.status) == (ending, OK)


def test_an_exception_shows_only_the_frames_of_the_program(sandbox):
    reply = sandbox.run("import json\nprint('before')\njson.loads('{')")
    assert reply.status is ERROR
    assert reply.text.splitlines() == [
        "before",
        "Traceback (most recent call last):",
        '  File "main.py", line 3, in <module>',
        "    json.loads('{')",
        *(line for line in reply.text.splitlines() if set(line) == {" ", "^"}),
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)",
    ]


def test_what_led_to_an_exception_is_shown_without_library_frames_too(sandbox):
    code = (
        "import json\ntry:\n    json.loads('{')\n"
        "except ValueError as e:\n    raise KeyError(1) from e"
    )
    text = sandbox.run(code).text
    assert text.count('File "main.py"') == text.count("File ") == 2
    assert "direct cause" in text


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("x = (", "SyntaxError: '(' was never closed"),
        ("  x = 1", "IndentationError: unexpected indent"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)", "[exit code 3]"),
        ("import sys\nsys.exit('no')", "no"),
        ("import os\nos._exit(9)", "[exit code 9]"),
        ("import numpy", "ModuleNotFoundError: No module named 'numpy'"),
        ("input()", "EOFError: EOF when reading a line"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        (
            "class A:\n  def __repr__(self): return 1 / 0\nA()",
            "ZeroDivisionError: division by zero",
        ),
        ("import os\nos.kill(os.getpid(), 9)", "[the process was ended by SIGKILL]"),
        ("import os\nos.abort()", "[the process was ended by SIGABRT]"),
        ("import ctypes\nctypes.string_at(0)", "[the process was ended by SIGSEGV]"),
    ],
)
def test_a_failing_program_says_how_it_failed(sandbox, code, ending):
    reply = sandbox.run(code)
    assert reply.text.splitlines()[-1] == ending
    assert reply.status is ERROR


def test_a_deep_recursion_does_not_flood_the_traceback(sandbox):
    text = sandbox.run("import sys\nsys.setrecursionlimit(20_000)\ndef f(): f()\nf()").text
    assert len(text.splitlines()) < 70


def test_a_long_chain_of_causes_is_cut(sandbox):
    code = (
        "error = None\nfor i in range(5000):\n    try:\n        raise ValueError(i) from error\n"
        "    except ValueError as e:\n        error = e\nraise error"
    )
    reply = sandbox.run(code)
    assert reply.text.endswith("ValueError: 4999")
    assert reply.status is ERROR


def test_a_program_that_takes_too_long_keeps_what_it_printed(sandbox):
    reply = sandbox.run("print('so far')\nwhile True: pass")
    assert reply.text == "so far\n[stopped after 2 seconds]"
    assert reply.status is ToolStatus.TIMEOUT
    assert reply.seconds >= 2.0


def test_processor_time_is_limited_per_process():
    together = (
        "import os, time\nchild = os.fork()\nwhile time.process_time() < 0.7: pass\n"
        "if child: os.wait(); print('both')"
    )
    alone = "print('so far', flush=True)\nwhile True: pass"

    async def run():
        limits = {"servers": 1, "cpu_seconds": 1, "wall_seconds": 60.0}
        async with PythonTool(PythonSettings(**limits)) as tool:
            return [await tool.opened.backend.run(code) for code in (together, alone)]

    first, second = asyncio.run(run())
    assert (first.kind, first.out) == (Kind.OK, b"both\n")
    assert (second.kind, second.out) == (Kind.CPU, b"so far\n")
    assert second.cpu < 2  # in seconds; the kernel counts them roughly


def test_running_out_of_memory_is_told_with_the_line(sandbox):
    reply = sandbox.run("held = []\nwhile True:\n    held.append(bytearray(1 << 20))")
    assert reply.status is ToolStatus.MEMORY
    assert "line 3" in reply.text
    assert reply.text.endswith("MemoryError\n[stopped: more than 160 MB of memory]")


def test_memory_is_limited_for_all_processes_together(sandbox):
    code = (
        "import os, time\nfor _ in range(6):\n    if not os.fork():\n"
        "        held = bytearray(b'x') * (60 << 20)\n        time.sleep(9)\ntime.sleep(9)"
    )
    reply = sandbox.run(code)
    assert (reply.text, reply.status) == (
        "[stopped: more than 160 MB of memory]",
        ToolStatus.MEMORY,
    )


def test_shared_memory_is_counted_too(sandbox):
    code = (
        "import os, mmap, time\nfile = open('shared', 'w+b')\nfile.truncate(60 << 20)\n"
        "for _ in range(4):\n    if not os.fork():\n"
        "        m = mmap.mmap(file.fileno(), 60 << 20)\n"
        "        for at in range(0, len(m), 4096): m[at] = 1\n        time.sleep(9)\ntime.sleep(9)"
    )
    assert sandbox.run(code).status is ToolStatus.MEMORY


def test_a_handled_memory_error_is_no_failure(sandbox):
    reply = sandbox.run("try:\n    x = bytearray(1 << 40)\nexcept MemoryError:\n    print('fine')")
    assert (reply.text, reply.status) == ("fine", OK)


@pytest.mark.parametrize("descriptor", [1, 2])
def test_a_flood_of_output_is_stopped(sandbox, descriptor):
    code = f"import os\nwhile True: os.write({descriptor}, b'head' + b'x' * 65536)"
    reply = sandbox.run(code)
    assert reply.status is ToolStatus.TRUNCATED
    assert reply.text.startswith("head")
    assert reply.text.endswith("[stopped: too much output]")
    assert len(reply.text) < 2200


def test_output_that_is_merely_long_is_cut_and_fine(sandbox):
    reply = sandbox.run("print('a' * 500_000 + 'z')")
    assert reply.status is OK
    assert reply.text.startswith("aaa")
    assert reply.text.endswith("aaz")
    # 500 002 bytes with the line's end; 2000 are shown, of 65 535 that remain without it.
    assert "[498001 characters left out]" in reply.text


def test_both_streams_may_be_full_at_once(sandbox):
    code = (
        "import os\nfor _ in range(50):\n"
        "    os.write(1, b'o' * 65536)\n    os.write(2, b'e' * 65536)"
    )
    reply = sandbox.run(code)
    assert reply.status is OK
    assert reply.text.startswith("ooo")
    assert reply.text.endswith("eee")


def test_a_bad_call_is_answered_and_not_run(sandbox):
    reply = sandbox.send("print(1)")
    assert reply.status is ERROR
    assert "not JSON" in reply.text


def test_an_unknown_tool_is_answered_with_the_known_one(sandbox):
    reply = sandbox.send('{"code": "1"}', name="bash")
    assert (reply.text, reply.status) == ("There is no tool 'bash', only 'python'.", ERROR)


def test_a_faulty_call_is_answered_with_its_fault(sandbox):
    call = ToolCall(id="7", name="python", arguments='{"code": "1"}', fault="Not closed.")
    reply = sandbox.runner.run(sandbox.tool.call(call))
    assert (reply.call_id, reply.text, reply.status) == ("7", "Not closed.", ERROR)


def test_the_tool_describes_itself(sandbox):
    (spec,) = sandbox.tool.specs
    assert spec.name == "python"
    assert spec.parameters["required"] == ["code"]


def test_no_isolation_needs_a_setting_and_a_variable(sandbox, monkeypatch):
    monkeypatch.delenv(CONSENT, raising=False)
    tool = PythonTool(PythonSettings(tier="none"))
    with pytest.raises(RecipeError, match=f"set {CONSENT}=1"):
        sandbox.runner.run(tool.__aenter__())


def test_a_module_that_is_not_there_cannot_be_preloaded(sandbox):
    tool = PythonTool(PythonSettings(preload=("numpy",)))
    with pytest.raises(RecipeError, match="No module named 'numpy'"):
        sandbox.runner.run(tool.__aenter__())
