"""Sessions: an interpreter for each attempt, in every tier, and what happens when it is lost."""

import asyncio
import json
import os
import signal

import pytest

from forethought.agents.tool_agent import ToolAgent
from forethought.core.messages import ToolCall, ToolStatus
from forethought.tools.protocol import for_attempt
from forethought.tools.python_tool import PythonTool, python_spec
from forethought.tools.sandbox.outcome import Kind
from scripted import KEY, PROBLEM, ExactGrader, ScriptedPolicy, says
from scripted import call as scripted_call
from tools.conftest import SMALL
from tools.test_supervision import parents, supervisors

KEEPING = SMALL.model_copy(update={"state": "session", "servers": 1, "wall_seconds": 1.0})


def call(code):
    return ToolCall(id="1", name="python", arguments=json.dumps({"code": code}))


@pytest.fixture
def in_session(tier):
    """Run programs of one session, in each tier."""

    def run(*programs):
        pool = tier.tool.opened.backend
        session = pool.open_session()

        async def all_of_them():
            return [await pool.run(code, session=session) for code in programs]

        try:
            return tier.runner.run(all_of_them())
        finally:
            pool.close_session(session)

    return run


def test_variables_imports_and_functions_are_kept(in_session):
    *_, last = in_session("import math", "def f(x): return math.sqrt(x)", "y = f(16)", "y")
    assert (last.out, last.state_lost) == (b"4.0\n", False)


def test_an_error_keeps_what_was_there(in_session):
    _, failed, last = in_session("x = 1", "x = 2\n1 / 0", "x")
    assert failed.kind is Kind.ERROR
    assert b'File "cell.py", line 2' in failed.err
    assert (last.out, last.state_lost) == (b"2\n", False)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "x = (", "raise KeyboardInterrupt"])
def test_no_exception_ends_a_session(in_session, code):
    _, failed, last = in_session("x = 1", code, "x")
    assert failed.kind in (Kind.ERROR, Kind.SYNTAX)
    assert (last.out, last.state_lost) == (b"1\n", False)


OUT_OF_BAND = """
import socket
for descriptor in range(3, 20):
    try: wire = socket.socket(fileno=descriptor)
    except OSError: continue
    wire.send(b"x", socket.MSG_OOB)
    wire.detach()
import time
time.sleep(60)
"""


def test_a_byte_out_of_band_ends_its_session_and_no_other(tier):
    pool = tier.tool.opened.backend
    mine, other = pool.open_session(), pool.open_session()

    async def run():
        await pool.run("x = 41", session=other)
        ended = await pool.run(OUT_OF_BAND, session=mine)
        return ended, await pool.run("x + 1", session=other)

    ended, kept = tier.runner.run(run())
    for session in (mine, other):
        pool.close_session(session)
    assert (ended.kind, ended.state_lost) == (Kind.CRASH, True)
    assert (kept.out, kept.state_lost) == (b"42\n", False)


def test_a_program_that_can_be_interrupted_loses_nothing_by_its_timeout(in_session):
    _, late, last = in_session("x = 1", "print('so far')\nwhile True: pass", "x")
    assert late.kind is Kind.TIMEOUT
    assert late.out == b"so far\n"
    assert (last.out, last.state_lost) == (b"1\n", False)


def test_a_program_that_cannot_be_interrupted_loses_the_state_and_says_so(in_session):
    stubborn = "import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass"
    _, late, after, last = in_session("x = 1", stubborn, "'x' in globals()", "'x' in globals()")
    assert (late.kind, late.state_lost) == (Kind.TIMEOUT, True)
    assert (after.out, after.state_lost) == (b"False\n", False)
    assert last.state_lost is False


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import os\nos._exit(3)", Kind.ERROR),
        ("import ctypes\nctypes.string_at(0)", Kind.CRASH),
        ("held = b'x' * (1 << 40)", Kind.MEMORY),
    ],
)
def test_an_interpreter_that_ends_is_replaced(in_session, code, kind):
    _, ended, after = in_session("x = 1", code, "6 * 7")
    assert ended.kind is kind
    assert after.out == b"42\n"


@pytest.mark.parametrize("frame", ["b'D'", "b'D' + bytes(9)", "b'XX'", "bytes(60)"])
def test_a_forged_frame_is_a_crash(in_session, frame):
    forge = f"import os, time\nfor fd in range(3, 20):\n    try: os.write(fd, {frame})\n"
    _, forged, after = in_session("x = 1", f"{forge}    except OSError: pass\ntime.sleep(9)", "2")
    assert (forged.kind, forged.state_lost) == (Kind.CRASH, True)
    assert after.out == b"2\n"


def test_sessions_do_not_see_each_other(tier):
    pool = tier.tool.opened.backend
    first, second = pool.open_session(), pool.open_session()
    leave = "import os\nx = 1\nopen('left', 'w').close()\n'x' in globals(), os.listdir()"
    left = tier.runner.run(pool.run(leave, session=first))
    assert left.out == b"(True, ['left'])\n"
    seen = tier.runner.run(pool.run("import os\n'x' in globals(), os.listdir()", session=second))
    assert seen.out == b"(False, [])\n"
    for session in (first, second):
        pool.close_session(session)


WATCH = (
    "import threading, time\n"
    "gaps = [0.0]\n"
    "def watch():\n"
    "    last = time.monotonic()\n"
    "    while True:\n"
    "        now = time.monotonic()\n"
    "        gaps.append(now - last)\n"
    "        last = now\n"
    "        time.sleep(WAIT)\n"
    "threading.Thread(target=watch, daemon=True).start()"
)


@pytest.mark.parametrize("wait", ["0", "0.01"])
def test_what_a_program_leaves_running_is_held_until_the_next_one_begins(tier, wait):
    pool = tier.tool.opened.backend
    session = pool.open_session()

    async def both():
        await pool.run(WATCH.replace("WAIT", wait), session=session)
        await asyncio.sleep(1.5)
        goes_on = "before = len(gaps)\ntime.sleep(0.3)\nmax(gaps) > 1, len(gaps) > before"
        return await pool.run(goes_on, session=session)

    outcome = tier.runner.run(both())
    pool.close_session(session)
    assert outcome.out == b"(True, True)\n"


def test_one_server_keeps_a_hundred_sessions_apart():
    settings = KEEPING.model_copy(update={"max_sessions": 100, "wall_seconds": 20.0})

    async def run():
        async with PythonTool(settings) as tool:
            pool = tool.opened.backend
            sessions = [pool.open_session() for _ in range(100)]
            for number, session in enumerate(sessions):
                await pool.run(f"x = {number}", session=session)
            outcomes = [await pool.run("x", session=session) for session in sessions]
            for session in sessions:
                pool.close_session(session)
            return outcomes, len(pool.sessions), (await pool.run("6 * 7")).out

    outcomes, left, after = asyncio.run(run())
    assert [outcome.out for outcome in outcomes] == [b"%d\n" % n for n in range(100)]
    assert (left, after) == (0, b"42\n")


def test_a_server_that_dies_takes_the_state_and_says_so():
    async def run():
        before = set(supervisors())
        async with PythonTool(KEEPING) as tool, for_attempt(tool) as own:
            await own.call(call("x = 1"))
            new = set(supervisors()) - before
            (zygote,) = (process for process, parent in parents().items() if parent in new)
            os.kill(zygote, signal.SIGKILL)
            while new & set(supervisors()):  # otherwise a program may still be handed to it
                await asyncio.sleep(0.05)
            return [await own.call(call("'x' in globals()")) for _ in range(2)]

    first, second = asyncio.run(run())
    assert first.text == "False\n[the variables of earlier programs are lost]"
    assert second.text == "False"


def test_an_agent_has_a_session_for_its_attempt_and_none_after():
    script = [
        says("", scripted_call('{"code": "x = 41"}')),
        says("", scripted_call('{"code": "x + 1"}')),
        says("42"),
    ]

    async def run():
        async with PythonTool(KEEPING) as tool:
            agent = ToolAgent(policy=ScriptedPolicy(script), tools=tool, grader=ExactGrader())
            episodes = [await agent.attempt(PROBLEM, KEY) for _ in range(2)]
            return episodes, len(tool.opened.backend.sessions)

    episodes, left = asyncio.run(run())
    for episode in episodes:
        replies = [turn.replies[0] for turn in episode.trajectories[0].turns[:2]]
        assert [reply.text for reply in replies] == ["[no output]", "42"]
        assert replies[1].status is ToolStatus.OK
    assert left == 0


def test_the_model_is_told_whether_variables_are_kept():
    assert "afresh" in python_spec(SMALL).description
    assert "are kept" in python_spec(KEEPING).description
