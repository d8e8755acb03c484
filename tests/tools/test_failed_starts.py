"""Servers that a host has no room for: a failure of infrastructure, of which nothing is left."""

import asyncio
import os
import resource
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.fleet import Health
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.server import Launch, ServerDiedError, start_server
from forethought.tools.sandbox.tiers import examine
from forethought.tools.settings import PythonSettings
from tools.test_pool import ANSWERS, DIES, ScriptedServer
from tools.test_supervision import below, open_descriptors

FULL = BlockingIOError(11, "Resource temporarily unavailable")
ONE = PythonSettings(servers=1, tier="namespaces", memory_mb=160)


class Starts:
    """Starts what its script says, one after another: a server, or an error."""

    def __init__(self, *script):
        self.script = list(script)
        self.servers = []

    async def __call__(self, settings):
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(found, Exception):
            raise found
        self.servers.append(found)
        return found


def server(*script):
    return ScriptedServer(list(script))


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


@contextmanager
def room_for(descriptors):
    """No more than so many descriptors can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
        while (gap := os.dup(0)) < highest:
            stack.callback(os.close, gap)
        stack.callback(os.close, gap)
        resource.setrlimit(resource.RLIMIT_NOFILE, (gap + 1 + descriptors, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield


def test_however_few_descriptors_there_are_a_server_starts_or_leaves_nothing():
    async def run(room):
        before = (open_descriptors(os.getpid()), sorted(below(os.getpid())))
        pool, said = Pool(ONE), ""
        with room_for(room):
            try:
                await pool.__aenter__()
            except SandboxError as error:
                said = str(error)
        await pool.__aexit__(None, None, None)
        assert (open_descriptors(os.getpid()), sorted(below(os.getpid()))) == before
        return said

    with asyncio.Runner() as runner:
        runner.get_loop()
        said = [runner.run(run(room)) for room in (1, 3, 5, 7, 64)]
    assert all("Too many open files" in each for each in said[:3])
    assert said[-1] == ""


def test_a_server_that_does_not_read_what_it_must_know_is_ended():
    deaf = partial(start_server, launch=Launch(command=("/bin/false",)))
    before = (open_descriptors(os.getpid()), sorted(below(os.getpid())))

    async def run():
        # More than a pipe holds: writing goes on until the other end is closed.
        async with Pool(ONE.model_copy(update={"preload": ("x" * 200_000,)}), deaf):
            pass

    with pytest.raises(SandboxError, match="could not be started: BrokenPipeError"):
        asyncio.run(run())
    assert (open_descriptors(os.getpid()), sorted(below(os.getpid()))) == before


def test_a_tier_that_the_host_has_no_room_for_is_refused():
    examined, pool = asyncio.run(examine(ONE, "namespaces", Starts(FULL)))
    assert pool is None
    assert "it could not start" in examined.refusal
    assert "BlockingIOError" in examined.refusal


def test_a_call_whose_server_cannot_be_replaced_is_not_measured_and_counted():
    async def run():
        async with Pool(ONE, Starts(server(DIES), FULL)) as pool:
            with pytest.raises(SandboxError, match="could not be started: BlockingIOError"):
                await pool.run("1")
            return dict(pool.counts)

    assert asyncio.run(run()) == {"infrastructure": 1}


def test_whoever_watches_over_servers_goes_on_after_a_start_that_failed():
    dead = server(ANSWERS)
    starts = Starts(dead, FULL, FULL, server(ANSWERS))

    async def run():
        async with Pool(ONE, starts, Health(every=0.001, patience=1.0)) as pool:
            dead.alive = False
            await until(lambda: len(starts.servers) == 2)
            return (await pool.run("1")).out

    assert asyncio.run(run()) == b"42\n"


def test_servers_are_closed_whatever_became_of_the_watch_over_them():
    class Odd(ScriptedServer):
        asked = False

        async def answers(self, seconds):
            self.asked = True
            raise ValueError("a bug")

    odd = Odd([ANSWERS])

    async def run():
        async with Pool(ONE, Starts(odd), Health(every=0.001, patience=1.0)):
            await until(lambda: odd.asked)
            await asyncio.sleep(0)

    asyncio.run(run())
    assert odd.closed


class Held(ScriptedServer):
    """Dies under its program once it is let."""

    def __init__(self):
        super().__init__([DIES])
        self.began, self.let = asyncio.Event(), asyncio.Event()

    async def run(self, code, stdin=b"", session=0):
        self.began.set()
        await self.let.wait()
        self.alive = False
        raise ServerDiedError("the fork server ended")


def test_no_server_is_started_once_the_sandbox_is_closed():
    async def run():
        held = Held()
        starts = Starts(held, server(ANSWERS))
        async with Pool(ONE, starts) as pool:
            calls = [asyncio.create_task(pool.run("1")) for _ in range(9)]
            await held.began.wait()
        held.let.set()
        return await asyncio.gather(*calls, return_exceptions=True), len(starts.servers)

    ended, started = asyncio.run(run())
    assert {(type(each), str(each)) for each in ended} == {
        (SandboxError, "the sandbox has been closed")
    }
    assert started == 1


def test_a_server_that_starts_while_the_sandbox_closes_is_closed_as_well():
    late = server(ANSWERS)

    async def run():
        asked, let = asyncio.Event(), asyncio.Event()

        async def start(settings):
            if not asked.is_set():
                asked.set()
                return server(DIES)
            let.set()
            await asyncio.sleep(0.01)
            return late

        async with Pool(ONE, start) as pool:
            call = asyncio.create_task(pool.run("1"))
            await let.wait()
        with pytest.raises(SandboxError, match="has been closed"):
            await call

    asyncio.run(run())
    assert late.closed


def test_the_interpreter_for_programs_is_asked_once_whatever_becomes_of_servers(tmp_path):
    packages = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", packages], check=True)
    asked = tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho once >> {asked}\nexec {packages}/bin/python "$@"\n')
    python.chmod(0o755)

    async def run():
        async with Pool(ONE.model_copy(update={"python": str(python)})) as pool:
            await pool._fleet.rebuild()
            return (await pool.run("6 * 7")).out, dict(pool.replaced)

    assert asyncio.run(run()) == (b"42\n", {"rebuilt": 1})
    assert asked.read_text() == "once\n"
