"""Who is to blame when a server fails: infrastructure, or the program that was with it."""

import asyncio
from dataclasses import dataclass, field

import pytest

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.inside.frames import End, Report
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.server import ServerDiedError
from forethought.tools.settings import PythonSettings

ANSWERS = Report(1, End.EXITED, out=b"42\n", out_bytes=3)
CANNOT_BEGIN = Report(1, End.SETUP, err=b"mount(/tmp): No space left on device")
DIES = ServerDiedError("the fork server ended")


@dataclass
class ScriptedServer:
    """Answers calls as its script says, the last line for ever."""

    script: list[Report | ServerDiedError]
    alive: bool = True
    wedged: bool = False
    load: int = 0
    closed: bool = False
    ran: list[bytes] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    async def run(self, code, stdin=b"", session=0):
        self.ran.append(code)
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, ServerDiedError):
            self.alive = False
            raise answer
        return answer

    async def answers(self, seconds):
        return self.alive

    def end_session(self, session):
        self.ended.append(session)

    async def close(self):
        self.closed = True


class Starts:
    """Starts one scripted server after another; an error in the script is a failed start."""

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.servers = []

    async def __call__(self, settings):
        script = self.scripts.pop(0)
        if isinstance(script, SandboxError):
            raise script
        self.servers.append(ScriptedServer(script))
        return self.servers[-1]


def run(starts, calls=1):
    async def all_calls():
        async with Pool(PythonSettings(servers=2), starts) as pool:
            return [await pool.run("6 * 7") for _ in range(calls)]

    return asyncio.run(all_calls())


def test_a_call_that_could_not_begin_is_tried_on_another_server():
    starts = Starts([CANNOT_BEGIN], [ANSWERS])
    (outcome,) = run(starts)
    assert (outcome.kind, outcome.out) == (Kind.OK, b"42\n")
    assert [len(server.ran) for server in starts.servers] == [1, 1]


def test_a_call_that_no_server_can_begin_is_an_infrastructure_error():
    starts = Starts([CANNOT_BEGIN], [CANNOT_BEGIN])
    with pytest.raises(SandboxError, match="No space left on device"):
        run(starts)
    assert sum(len(server.ran) for server in starts.servers) == 3


def test_a_program_is_not_to_blame_for_one_death():
    starts = Starts([DIES], [ANSWERS], [ANSWERS])
    (outcome,) = run(starts)
    assert outcome.kind is Kind.OK
    alone = starts.servers[2]
    assert alone.ran == [b"6 * 7"]
    assert alone.closed


def test_a_program_that_takes_two_servers_with_it_is_to_blame():
    (outcome,) = run(Starts([DIES], [ANSWERS], [DIES]))
    assert outcome.kind is Kind.CRASH


def test_a_server_that_cannot_be_replaced_is_an_infrastructure_error():
    starts = Starts([DIES], [ANSWERS], SandboxError("no memory for a fork"))
    with pytest.raises(SandboxError, match="no memory for a fork"):
        run(starts)


def test_no_server_stays_open_when_one_does_not_start():
    starts = Starts([ANSWERS], SandboxError("no user namespaces"))
    with pytest.raises(SandboxError, match="no user namespaces"):
        run(starts)
    assert starts.servers[0].closed


def test_a_pool_that_is_not_open_says_so():
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(Pool(PythonSettings()).run("1"))
