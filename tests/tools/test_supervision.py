"""Many calls, cancelled calls, killed servers: every reply is right, and nothing stays behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import forethought
from forethought.core.messages import ToolCall, ToolStatus
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.fleet import Health
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.server import start_server
from forethought.tools.settings import PythonSettings

SETTINGS = PythonSettings(servers=2, wall_seconds=3.0, memory_mb=160)
PATIENT = SETTINGS.model_copy(update={"servers": 1, "wall_seconds": 600.0})
ONE = PythonSettings(tier="namespaces", servers=1, wall_seconds=600.0)


def call(code, number=0):
    return ToolCall(id=str(number), name="python", arguments=json.dumps({"code": code}))


def parents():
    """The parent of every process of the host."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def state(process):
    """The letter of a process's state: Z when it has ended and nobody has asked for its end."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def below(root):
    """All processes below one."""
    family, found = parents(), []
    level = [root]
    while level:
        level = [process for process, parent in family.items() if parent in level]
        found += level
    return found


def open_descriptors(process):
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def supervisors():
    """The servers of this test process."""
    found = [process for process, parent in parents().items() if parent == os.getpid()]
    return [p for p in found if b"inside.supervisor" in Path(f"/proc/{p}/cmdline").read_bytes()]


def named(comm):
    """Processes that gave themselves this name."""
    found = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            if file.read_text().strip() == comm:
                found.append(int(file.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def becomes(condition, seconds=20):
    """Whether a condition that the kernel is about to make true does become so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


async def started(comm):
    while not named(comm):
        await asyncio.sleep(0.01)


def waits(comm, seconds=1):
    """A program that gives itself a name, prints, and sleeps."""
    return (
        f"import ctypes, time\nctypes.CDLL(None).prctl(15, {comm!r}.encode())\n"
        f"print('began')\ntime.sleep({seconds})\nprint('done')"
    )


def test_a_hundred_calls_at_once_are_each_answered_with_their_own():
    async def run():
        async with PythonTool(SETTINGS) as tool:
            calls = (call(f"print({number} ** 2)", number) for number in range(100))
            return await asyncio.gather(*(tool.call(each) for each in calls))

    replies = asyncio.run(run())
    assert [reply.call_id for reply in replies] == [str(number) for number in range(100)]
    assert [reply.text for reply in replies] == [str(number**2) for number in range(100)]


def test_waiting_in_line_is_no_part_of_the_time_that_a_program_has():
    async def run():
        settings = SETTINGS.model_copy(update={"calls_per_server": 2})
        async with PythonTool(settings) as tool:
            calls = (call("import time\ntime.sleep(1)\n1") for _ in range(16))
            return await asyncio.gather(*(tool.call(each) for each in calls))

    replies = asyncio.run(run())
    assert [reply.status for reply in replies] == [ToolStatus.OK] * 16
    assert all(1 <= reply.seconds < 3 for reply in replies)


def test_hostile_calls_do_not_change_the_replies_to_others():
    hostile = (
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "import os\nos.kill(-1, 9)\nos.abort()",
        "x = [0]\nwhile True: x += x",
        "import os\nfor _ in range(40):\n    try: os.fork()\n    except OSError: pass",
    )

    async def run():
        async with PythonTool(SETTINGS) as tool:
            noise = [tool.call(call(code)) for code in hostile * 3]
            calls = [tool.call(call(f"print({number})")) for number in range(60)]
            replies = await asyncio.gather(*calls, *noise)
            return replies[:60]

    assert [reply.text for reply in asyncio.run(run())] == [str(number) for number in range(60)]


def test_a_cancelled_call_ends_its_program_and_frees_its_place():
    async def run():
        settings = PATIENT.model_copy(update={"calls_per_server": 1})
        async with PythonTool(settings) as tool:
            running = asyncio.create_task(tool.call(call(waits("cancelled", 300))))
            waiting = asyncio.create_task(tool.call(call("print('never')")))
            await started("cancelled")
            waiting.cancel()
            running.cancel()
            ended = await asyncio.gather(running, waiting, return_exceptions=True)
            reply = await tool.call(call("6 * 7"))
            return ended, reply, becomes(lambda: not named("cancelled"))

    ended, reply, gone = asyncio.run(run())
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert (reply.text, gone) == ("42", True)


def test_a_tool_that_is_closed_with_calls_in_flight_leaves_nothing():
    async def run():
        async with PythonTool(PATIENT) as tool:
            tasks = [asyncio.create_task(tool.call(call(waits("closing", 300)))) for _ in range(4)]
            await started("closing")
            for task in tasks:
                task.cancel()
            return tasks

    before = below(os.getpid())
    asyncio.run(run())
    assert not named("closing")
    assert sorted(below(os.getpid())) == sorted(before)


def test_killed_servers_are_replaced_and_their_calls_run_again():
    async def run():
        async with PythonTool(SETTINGS) as tool:
            tasks = [asyncio.create_task(tool.call(call(waits("orphaned")))) for _ in range(3)]
            await started("orphaned")
            for supervisor in supervisors():
                os.kill(supervisor, signal.SIGKILL)
            replies = await asyncio.gather(*tasks)
            replies.append(await tool.call(call("6 * 7")))
            async with asyncio.timeout(60):
                while tool.opened.backend.replaced != {"dead": 2}:
                    await asyncio.sleep(0.01)
            return replies, len(supervisors())

    replies, servers = asyncio.run(run())
    assert [reply.text for reply in replies] == ["began\ndone"] * 3 + ["42"]
    assert servers == 2


@pytest.mark.parametrize("who", ["supervisor", "zygote"])
def test_a_program_does_not_outlive_its_server(who):
    async def run():
        before = {*supervisors()}
        async with PythonTool(PATIENT) as tool:
            task = asyncio.create_task(tool.call(call(waits(f"of_{who}", 300))))
            await started(f"of_{who}")
            programs = {*named(f"of_{who}")}
            (supervisor,) = {*supervisors()} - before
            (zygote,) = (p for p, parent in parents().items() if parent == supervisor)
            os.kill(supervisor if who == "supervisor" else zygote, signal.SIGKILL)
            gone = becomes(lambda: not programs & {*parents()})
            task.cancel()
            return programs, gone

    programs, gone = asyncio.run(run())
    assert programs
    assert gone


@asynccontextmanager
async def started_alone():
    """A server and its processes, by what they are."""
    before = {*supervisors()}
    server = await start_server(ONE)
    try:
        (supervisor,) = {*supervisors()} - before
        (zygote,) = (p for p, parent in parents().items() if parent == supervisor)
        yield server, {"supervisor": supervisor, "zygote": zygote}
    finally:
        await server.close()


@pytest.mark.parametrize("who", ["supervisor", "zygote"])
def test_a_server_that_works_says_so_and_one_that_is_stopped_is_ended(who):
    async def run():
        async with started_alone() as (server, family):
            busy = asyncio.create_task(server.run(b"import time\ntime.sleep(300)"))
            assert await server.answers(60.0)
            assert server.alive
            assert not busy.done()
            busy.cancel()
            os.kill(family[who], signal.SIGSTOP)
            assert not await server.answers(0.5)
            assert (server.alive, server.wedged) == (False, True)
            assert becomes(lambda: state(family["supervisor"]) == "Z")
        return family.values()

    family = asyncio.run(run())
    assert becomes(lambda: not {*family} & {*parents()})


@pytest.mark.parametrize("who", ["supervisor", "zygote"])
def test_a_stopped_server_is_noticed_without_a_call_and_replaced(who):
    async def run():
        before = {*supervisors()}
        async with Pool(ONE, start_server, Health(every=0.05, patience=1.0)) as pool:
            (supervisor,) = {*supervisors()} - before
            (zygote,) = (p for p, parent in parents().items() if parent == supervisor)
            os.kill(supervisor if who == "supervisor" else zygote, signal.SIGSTOP)
            async with asyncio.timeout(60):
                while not pool.replaced:
                    await asyncio.sleep(0.01)
            outcome = await pool.run("6 * 7")
            return pool.replaced, outcome

    replaced, outcome = asyncio.run(run())
    assert {*replaced} == {"wedged"}  # more than once where a busy machine made the next one slow
    assert outcome.out == b"42\n"


@pytest.mark.parametrize("who", ["supervisor", "zygote"])
def test_a_server_that_is_killed_while_it_is_asked_is_dead_and_no_more(who):
    async def run():
        async with started_alone() as (server, family):
            os.kill(family["zygote"], signal.SIGSTOP)
            asked = asyncio.create_task(server.answers(600.0))
            await asyncio.sleep(0)
            os.kill(family[who], signal.SIGKILL)
            return await asked, server.alive, server.wedged

    assert asyncio.run(run()) == (False, False, False)


def test_killed_zygotes_are_noticed_too():
    async def run():
        async with PythonTool(SETTINGS) as tool:
            task = asyncio.create_task(tool.call(call(waits("zygoteless"))))
            await started("zygoteless")
            for supervisor in supervisors():
                for zygote in [p for p, parent in parents().items() if parent == supervisor]:
                    os.kill(zygote, signal.SIGKILL)
            return await task, await tool.call(call("6 * 7"))

    replies = asyncio.run(run())
    assert [reply.text for reply in replies] == ["began\ndone", "42"]


def test_two_hundred_calls_leave_no_process_and_no_descriptor():
    def counts():
        descriptors = [open_descriptors(process) for process in (os.getpid(), *servers)]
        return descriptors, len(below(os.getpid()))

    codes = ("print(1)", "import os\nos.fork()", "1 / 0", "import os\nos.abort()")

    async def serve(tool, rounds):
        for _ in range(rounds):
            await asyncio.gather(*(tool.call(call(code)) for code in codes))

    async def run():
        nonlocal servers
        async with PythonTool(SETTINGS) as tool:
            servers = supervisors()
            servers += [p for p, parent in parents().items() if parent in servers]
            await serve(tool, 5)
            await asyncio.sleep(0.3)
            before = counts()
            await serve(tool, 50)
            await asyncio.sleep(0.3)
            return before, counts()

    servers = []
    outside = (open_descriptors(os.getpid()), len(below(os.getpid())))
    before, after = asyncio.run(run())
    assert after == before
    assert (open_descriptors(os.getpid()), len(below(os.getpid()))) == outside


def test_nothing_survives_a_trainer_that_is_killed():
    program = (
        "import asyncio, json\n"
        "from forethought.core.messages import ToolCall\n"
        "from forethought.tools.python_tool import PythonTool\n"
        "from forethought.tools.settings import PythonSettings\n"
        "async def main():\n"
        "    async with PythonTool(PythonSettings(wall_seconds=600)) as tool:\n"
        f"        code = json.dumps({{'code': {waits('bereft', 300)!r}}})\n"
        "        await tool.call(ToolCall(id='1', name='python', arguments=code))\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(forethought.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as trainer:
        assert becomes(lambda: named("bereft"))
        family = below(trainer.pid)
        trainer.kill()
    assert len(family) > 4
    assert becomes(lambda: not set(family) & set(parents()))
    assert not named("bereft")


def test_a_tool_opens_in_a_thread_of_a_process_that_has_other_children():
    replies = []

    async def run():
        async with PythonTool(SETTINGS) as tool:
            replies.append(await tool.call(call("6 * 7")))

    with subprocess.Popen(["sleep", "60"]) as other:
        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        thread.join()
        assert other.poll() is None
        other.kill()
    assert [reply.text for reply in replies] == ["42"]
