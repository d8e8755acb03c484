"""Servers that died are replaced beside the calls, which wait only where no server lives."""

import asyncio
import logging
from contextlib import suppress

import pytest

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.fleet import Fleet, Health
from forethought.tools.settings import PythonSettings
from tools.test_pool import ANSWERS, ScriptedServer

SELDOM = Health(every=600.0)
FULL = SandboxError("no memory for a fork")


class Starts:
    """Starts servers of a kind; from the one after `held` on, only when it is let."""

    def __init__(self, held, kind):
        self.kind = kind
        self.servers = []
        self.asked = 0
        self.held = held
        self.left = 0
        self.failure = None
        self.let = asyncio.Event()

    async def __call__(self, settings):
        self.asked += 1
        if self.asked > self.held:
            try:
                await self.let.wait()
            finally:
                self.left += 1
        if self.failure is not None:
            raise self.failure
        self.servers.append(self.kind([ANSWERS]))
        return self.servers[-1]


def with_two(go, held=2, health=SELDOM, kind=ScriptedServer):
    """What `go` comes to with two servers, and with what starts more."""

    async def run():
        starts = Starts(held, kind)
        fleet = Fleet(PythonSettings(servers=2), starts, health)
        await fleet.open()
        try:
            async with asyncio.timeout(60):
                return await go(fleet, starts)
        finally:
            await fleet.close()
            assert all(server.closed for server in starts.servers)

    return asyncio.run(run())


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def die(*servers):
    for server in servers:
        server.alive = False


def test_calls_go_on_with_a_live_server_while_a_dead_one_is_replaced():
    async def go(fleet, starts):
        dead, well = starts.servers
        die(dead)
        chosen = [await fleet.choose(attempt) for attempt in range(3)]
        assert all(each is well for each in chosen)
        await until(lambda: starts.asked == 3)
        starts.let.set()
        await until(lambda: fleet.replaced)
        assert dead.closed
        assert fleet.servers == (starts.servers[2], well)
        return dict(fleet.replaced)

    assert with_two(go) == {"dead": 1}


def test_a_server_that_cannot_be_replaced_fails_no_call_while_another_lives(caplog):
    async def go(fleet, starts):
        starts.failure = FULL
        die(starts.servers[0])
        await fleet.choose()
        await until(lambda: caplog.records)
        assert await fleet.choose() is starts.servers[1]
        await asyncio.sleep(0)
        assert starts.asked == 3  # the next to try is the watch

    with caplog.at_level(logging.WARNING, "forethought.tools"):
        with_two(go, held=9)
    assert "was not replaced: no memory for a fork" in caplog.text


def test_the_watch_tries_again_what_failed():
    async def go(fleet, starts):
        starts.failure = FULL
        die(starts.servers[0])
        await until(lambda: starts.asked >= 4)
        starts.failure = None
        await until(lambda: fleet.replaced)
        return all(server.alive for server in fleet.servers)

    assert with_two(go, held=1_000_000, health=Health(every=0.001))


def test_where_no_server_lives_the_first_new_one_is_waited_for_and_no_more():
    async def go(fleet, starts):
        die(*starts.servers)
        assert await fleet.choose() is starts.servers[2]
        assert len(starts.servers) == 3
        assert await fleet.choose(1) is starts.servers[2]
        await until(lambda: starts.asked == 4)

    with_two(go, held=3)


def test_where_no_server_lives_everybody_is_told_why_none_starts():
    async def go(fleet, starts):
        die(*starts.servers)
        starts.failure = FULL
        calls = [asyncio.create_task(fleet.choose()) for _ in range(3)]
        await until(lambda: starts.asked == 3)
        starts.let.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert starts.asked == 3  # one start for all of them
        return found

    assert with_two(go) == [FULL] * 3


def test_a_call_that_is_given_up_leaves_the_new_server_to_the_others():
    async def go(fleet, starts):
        die(*starts.servers)
        first, second = (asyncio.create_task(fleet.choose()) for _ in range(2))
        await until(lambda: starts.asked == 3)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        starts.let.set()
        return await second is starts.servers[2]

    assert with_two(go)


def test_what_is_being_started_is_given_up_when_the_sandbox_closes():
    async def go(fleet, starts):
        die(*starts.servers)
        call = asyncio.create_task(fleet.choose())
        await until(lambda: starts.asked == 3)
        await fleet.close()
        with pytest.raises(SandboxError, match="has been closed"):
            await call
        return starts.left, len(asyncio.all_tasks())

    assert with_two(go) == (1, 1)


def test_a_bug_in_replacing_is_told_with_its_place(caplog):
    class Odd(ScriptedServer):
        async def close(self):
            self.alive, alive = True, self.alive
            self.closed = True
            if not alive:
                raise ValueError("a bug")

    async def go(fleet, starts):
        die(starts.servers[0])
        await fleet.choose()
        await until(lambda: caplog.records)

    with_two(go, kind=Odd)
    assert "ValueError: a bug" in caplog.text
