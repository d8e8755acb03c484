"""Programs of one session run one after another, and take nothing from those beside them."""

import asyncio
import json
import os
import signal

import pytest

from forethought.core.errors import SandboxError
from forethought.core.messages import ToolCall
from forethought.tools.protocol import for_attempt
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.inside.frames import End, Report, State
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import INFRASTRUCTURE, Pool
from forethought.tools.sandbox.server import ServerDiedError
from forethought.tools.sandbox.turnstile import BusyError
from forethought.tools.settings import PythonSettings
from tools.conftest import SMALL
from tools.test_pool import ANSWERS, CANNOT_BEGIN, ScriptedServer
from tools.test_supervision import parents, started, supervisors, waits

CALM = PythonSettings(servers=1, calls_per_server=2, max_sessions=2)


class Gated(ScriptedServer):
    """Runs the programs of sessions only once its gate is open, and knows how many it has."""

    def __init__(self, script):
        super().__init__(script)
        self.gate = asyncio.Event()
        self.open, self.most = {}, {}

    async def run(self, code, stdin=b"", session=0):
        self.open[session] = self.open.get(session, 0) + 1
        self.most[session] = max(self.most.get(session, 0), self.open[session])
        if session:
            await self.gate.wait()
        self.open[session] -= 1
        return await super().run(code, stdin, session)


def with_servers(kind, settings, go, **more):
    """What `go` comes to with a pool of such servers, and the servers."""
    servers = []

    async def start(_):
        servers.append(kind(**more))
        return servers[-1]

    async def run():
        async with Pool(settings, start) as pool:
            return await go(pool, servers)

    return asyncio.run(run())


async def settled():
    for _ in range(50):
        await asyncio.sleep(0)


def test_one_program_of_a_session_is_on_its_way_and_the_others_take_no_places():
    async def go(pool, servers):
        session = pool.open_session()
        mine = [asyncio.create_task(pool.run("x", session=session)) for _ in range(8)]
        await settled()
        other = asyncio.create_task(pool.run("6 * 7"))
        await settled()
        passed = other.done()
        servers[0].gate.set()
        await asyncio.gather(*mine, other)
        return passed, servers[0].most[session.number], len(servers[0].ran)

    assert with_servers(Gated, CALM, go, script=[ANSWERS]) == (True, 1, 9)


def test_a_cancelled_program_of_a_session_lets_the_next_one_in():
    async def go(pool, servers):
        session = pool.open_session()
        first, second = (asyncio.create_task(pool.run("x", session=session)) for _ in range(2))
        await settled()
        first.cancel()
        servers[0].gate.set()
        return (await second).out

    assert with_servers(Gated, CALM, go, script=[ANSWERS]) == b"42\n"


def test_a_session_that_has_to_move_stays_whole():
    class Slow(ScriptedServer):
        async def run(self, code, stdin=b"", session=0):
            await settled()
            return await super().run(code, stdin, session)

    async def go(pool, servers):
        session = pool.open_session()
        await asyncio.gather(*(pool.run("x", session=session) for _ in range(4)))
        return [len(server.ran) for server in servers]

    # They share the script: the first program is refused once, and all run where it ran then.
    ran = with_servers(Slow, PythonSettings(servers=2), go, script=[CANNOT_BEGIN, ANSWERS])
    assert ran == [1, 4]


def test_too_many_sessions_are_no_failure_of_a_server():
    async def go(pool, servers):
        for _ in range(CALM.max_sessions):
            await pool.run("x", session=pool.open_session())
        for _ in range(100):
            with pytest.raises(BusyError, match=r"busy: 2 sessions .* raise tool\.max_sessions"):
                await pool.run("x", session=pool.open_session())
        return pool.counts[INFRASTRUCTURE], len(servers)

    assert with_servers(ScriptedServer, CALM, go, script=[ANSWERS]) == (100, 1)


def test_a_full_line_is_no_failure_of_a_server():
    narrow = PythonSettings(servers=1, calls_per_server=1, queue=1)

    class Slow(ScriptedServer):
        async def run(self, code, stdin=b"", session=0):
            await settled()
            return await super().run(code, stdin, session)

    async def go(pool, servers):
        calls = (pool.run("x") for _ in range(100))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        return sum(isinstance(each, BusyError) for each in ended), len(servers)

    assert with_servers(Slow, narrow, go, script=[ANSWERS]) == (98, 1)


def test_other_failures_of_sessions_still_count():
    async def go(pool, servers):
        session = pool.open_session()
        for _ in range(11):
            with pytest.raises(SandboxError, match="no server could start a session"):
                await pool.run("x", session=session)
        return dict(pool.replaced)

    assert with_servers(ScriptedServer, CALM, go, script=[CANNOT_BEGIN]) == {"rebuilt": 1}


def test_what_a_program_alone_defined_is_told_to_be_lost():
    fresh = Report(1, End.EXITED, state=State.FRESH)
    scripts = [[fresh, ServerDiedError("it ended")], [ANSWERS], [fresh]]

    async def go(pool, servers):
        session = pool.open_session()
        return [(await pool.run("x", session=session)).state_lost for _ in range(3)]

    def server():
        return ScriptedServer(scripts.pop(0))

    assert with_servers(server, CALM, go) == [False, True, True]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGXCPU])
def test_no_limit_of_processor_time_is_blamed_that_a_session_does_not_have(number):
    killed = Report(1, End.EXITED, State.LOST, status=number, cpu=CALM.cpu_seconds + 1.0)

    async def go(pool, servers):
        return await pool.run("x", session=pool.open_session()), await pool.run("x")

    in_session, outside = with_servers(ScriptedServer, CALM, go, script=[killed])
    assert (in_session.kind, in_session.detail) == (Kind.CRASH, number.name)
    assert outside.kind is Kind.CPU


def test_a_server_that_dies_under_a_program_of_a_session_is_told_of_twice():
    settings = SMALL.model_copy(update={"state": "session", "servers": 1, "tier": "namespaces"})

    def call(code):
        return ToolCall(id="1", name="python", arguments=json.dumps({"code": code}))

    async def run():
        before = set(supervisors())
        async with PythonTool(settings) as tool, for_attempt(tool) as own:
            await own.call(call("x = 1"))
            flying = asyncio.create_task(own.call(call(f"y = 2\n{waits('in-flight')}")))
            await started("in-flight")
            new = set(supervisors()) - before
            (zygote,) = (process for process, parent in parents().items() if parent in new)
            os.kill(zygote, signal.SIGKILL)
            after = [await own.call(call("'x' in globals(), 'y' in globals()")) for _ in range(2)]
            return [reply.text for reply in (await flying, *after)]

    flown, after, later = asyncio.run(run())
    lost = "[the variables of earlier programs are lost]"
    assert flown == f"began\ndone\n{lost}"
    assert after == f"(False, False)\n{lost}"
    assert later == "(False, False)"
