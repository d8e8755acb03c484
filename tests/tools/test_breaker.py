"""How much infrastructure may fail: it is rebuilt, and when that does not help the run stops."""

import asyncio

import pytest

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.sandbox.breaker import Advice, Breaker
from forethought.tools.sandbox.fleet import Health
from forethought.tools.sandbox.pool import INFRASTRUCTURE, Pool
from forethought.tools.sandbox.turnstile import LONG, BusyError, Turnstile
from forethought.tools.settings import PythonSettings
from tools.test_pool import ANSWERS, CANNOT_BEGIN, ScriptedServer


def test_up_to_two_percent_of_failures_is_borne():
    breaker = Breaker()
    notes = [breaker.note(failed=number % 50 == 0) for number in range(5000)]
    assert set(notes) == {Advice.GO_ON}


def test_more_advise_a_rebuild_each_time_they_gather_again():
    breaker = Breaker()
    notes = [breaker.note(failed=True) for _ in range(50)]
    assert [place for place, note in enumerate(notes, 1) if note is Advice.REBUILD] == [
        11,
        22,
        33,
        44,
    ]


def test_more_than_ten_percent_stop_the_run():
    breaker = Breaker()
    for _ in range(50):
        breaker.note(failed=True)
    with pytest.raises(RecipeError, match=r"51 of its last 51 programs.*doctor sandbox"):
        breaker.note(failed=True)


def test_old_failures_are_forgotten():
    breaker = Breaker()
    for _ in range(50):
        breaker.note(failed=True)
    for _ in range(500):
        breaker.note(failed=False)
    for _ in range(50):
        breaker.note(failed=True)


def test_a_pool_that_cannot_run_programs_is_rebuilt_and_then_stops():
    started = []

    async def start(settings):
        started.append(ScriptedServer([CANNOT_BEGIN]))
        return started[-1]

    async def run():
        async with Pool(PythonSettings(servers=2), start) as pool:
            failures = 0
            with pytest.raises(RecipeError, match="of its last 51 programs"):
                while True:
                    try:
                        await pool.run("1")
                    except SandboxError:
                        failures += 1
            return failures, pool.counts, pool.replaced

    failures, counts, replaced = asyncio.run(run())
    assert failures == 50
    assert counts == {INFRASTRUCTURE: 51}
    assert replaced == {"rebuilt": 8}
    assert all(server.closed for server in started)


def test_a_server_that_does_nothing_is_noticed_replaced_and_counted():
    class Wedged(ScriptedServer):
        async def answers(self, seconds):
            self.alive, self.wedged = False, True
            return False

    started = []

    async def start(settings):
        kind = ScriptedServer if started else Wedged
        started.append(kind([ANSWERS]))
        return started[-1]

    async def run():
        health = Health(every=0.01, patience=0.01)
        async with Pool(PythonSettings(servers=1), start, health) as pool:
            while not pool.replaced:
                await asyncio.sleep(0.01)
            outcome = await pool.run("1")
            return outcome, pool.replaced

    outcome, replaced = asyncio.run(run())
    assert outcome.out == b"42\n"
    assert replaced == {"wedged": 1}
    assert started[0].closed


def test_a_full_line_says_busy_and_the_others_get_in_in_order():
    async def run():
        line, order = Turnstile(1, 2), []

        async def go(number):
            async with line.inside():
                order.append(number)
                await asyncio.sleep(0)

        results = await asyncio.gather(*(go(n) for n in range(5)), return_exceptions=True)
        return order, results

    order, results = asyncio.run(run())
    assert order == [0, 1, 2]
    assert [type(each) for each in results] == [type(None)] * 3 + [BusyError] * 2
    assert "raise tool.queue=2" in str(results[-1])


def test_nobody_is_inside_while_the_line_is_shut():
    async def run():
        line, inside, came, seen = Turnstile(3, 100), set(), [], []

        async def go(number):
            async with line.inside():
                came.append(number)
                inside.add(number)
                await asyncio.sleep(0.001)
                inside.discard(number)

        async def shut():
            async with line.shut():
                before = len(came)
                seen.append(set(inside))
                late = [asyncio.create_task(go(number)) for number in range(5)]
                await asyncio.sleep(0.01)
                seen.append({*came[before:]})
            await asyncio.gather(*late)

        await asyncio.gather(*(go(number) for number in range(20)), shut(), shut())
        return seen, len(came)

    assert asyncio.run(run()) == ([set()] * 4, 20 + 2 * 5)


async def visit(line, name, events, until):
    """Be inside until told to leave."""
    async with line.inside():
        events.append(name)
        await until.wait()


async def told(events, *names):
    """Wait until these are in."""
    while events[-len(names) :] != [*names]:
        await asyncio.sleep(0.01)


def test_long_ones_step_aside_for_the_next_while_there_is_room():
    async def run():
        line, events = Turnstile(1, 100, aside=2), []
        ends = {name: asyncio.Event() for name in "abcd"}
        calls = [asyncio.create_task(visit(line, name, events, end)) for name, end in ends.items()]
        await told(events, "a", "b", "c")
        await asyncio.sleep(2 * LONG)
        assert events == ["a", "b", "c"]  # there is no room for c, which keeps its place
        ends["a"].set()
        await told(events, "d")
        for end in ends.values():
            end.set()
        await asyncio.gather(*calls)

    asyncio.run(run())


def test_the_line_is_not_shut_before_those_aside_have_left():
    async def run():
        line, events = Turnstile(1, 100, aside=1), []
        end = asyncio.Event()
        calls = [asyncio.create_task(visit(line, "a", events, end))]
        await asyncio.sleep(2 * LONG)

        async def shut():
            async with line.shut():
                events.append("shut")
                calls.append(asyncio.create_task(visit(line, "b", events, end)))
                await asyncio.sleep(0.01)
                events.append("open")

        calls.append(asyncio.create_task(shut()))
        await asyncio.sleep(0.01)
        assert events == ["a"]
        end.set()
        await told(events, "shut", "open", "b")
        await asyncio.gather(*calls)

    asyncio.run(run())
