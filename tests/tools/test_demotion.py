"""Programs that run long beside others give way: with their threads and all that they start."""

import asyncio
import os

import pytest

from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import Pool
from forethought.tools.settings import PythonSettings

NICEST = 19
ONE = PythonSettings(tier="namespaces", servers=1, wall_seconds=60.0)
pytestmark = pytest.mark.skipif(
    os.getpriority(os.PRIO_PROCESS, 0) == NICEST, reason="these tests are as nice as can be already"
)

COMPANION = "import time\ntime.sleep(600)"
PRIORITY = "os.getpriority(os.PRIO_PROCESS, 0)"
WAIT = (
    "import os, threading, time\n"
    f"first = {PRIORITY}\n"
    "def wait():\n"
    f"    while {PRIORITY} == first: time.sleep(0.01)\n"
    f"    print({PRIORITY}, flush=True)\n"
)
KINDS = {
    "a program": "wait()",
    "a thread": "one = threading.Thread(target=wait)\none.start()\none.join()",
    "a process that it started": (
        "if not os.fork():\n    wait()\n    os._exit(0)\nended = os.wait()"
    ),
}
AFTER_A_SECOND = f"import os, time\ntime.sleep(1)\nprint({PRIORITY})"


def later():
    """The priority of programs that give way."""
    return min(NICEST, os.getpriority(os.PRIO_PROCESS, 0) + 5)


def beside(work, settings=ONE):
    """What `work` comes to with a pool in which another program is at work."""

    async def run():
        async with Pool(settings) as pool:
            companion = asyncio.create_task(pool.run(COMPANION))
            try:
                return await work(pool)
            finally:
                companion.cancel()
                await asyncio.gather(companion, return_exceptions=True)

    return asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_long_beside_another_gives_way(kind):
    outcome = beside(lambda pool: pool.run(WAIT + KINDS[kind]))
    assert (outcome.kind, outcome.out) == (Kind.OK, b"%d\n" % later())


def test_a_program_that_begins_later_does_not_inherit_it():
    async def work(pool):
        earlier = await pool.run(WAIT + KINDS["a program"])
        assert earlier.kind is Kind.OK
        return await pool.run(f"import os\nprint({PRIORITY})")

    outcome = beside(work)
    assert outcome.out == b"%d\n" % os.getpriority(os.PRIO_PROCESS, 0)


def test_a_program_that_runs_alone_gives_way_to_nobody():
    async def run():
        async with Pool(ONE) as pool:
            return await pool.run(AFTER_A_SECOND)

    assert asyncio.run(run()).out == b"%d\n" % os.getpriority(os.PRIO_PROCESS, 0)


def test_a_session_stays_as_nice_as_it_was():
    async def work(pool):
        session = pool.open_session()
        mine, other = await asyncio.gather(
            pool.run(AFTER_A_SECOND, session=session), pool.run(WAIT + KINDS["a program"])
        )
        return mine, other

    mine, other = beside(work)
    assert mine.out == b"%d\n" % os.getpriority(os.PRIO_PROCESS, 0)
    assert other.out == b"%d\n" % later()


CROWD = (
    "import os, time\n"
    "children = []\n"
    "for _ in range(11):\n"
    "    child = os.fork()\n"
    "    if child == 0:\n"
    "        while True: time.sleep(0.01)\n"
    "    children.append(child)\n"
)
LOOKS = (
    "last, gaps = time.monotonic(), []\n"
    "while len(gaps) < 3:\n"
    "    time.sleep(0.001)\n"
    "    now = time.monotonic()\n"
    "    gaps += [now - last] * (now - last > 0.09)\n"
    "    last = now\n"
    f"print(len(gaps), {PRIORITY}, flush=True)\n"
)


def test_a_crowd_gives_way_more_and_is_held_from_time_to_time():
    # Of twelve processes two may run over time: held for five turns of six, each of 50 ms.
    outcome = beside(lambda pool: pool.run(CROWD + LOOKS))
    nice = min(NICEST, os.getpriority(os.PRIO_PROCESS, 0) + 13)
    assert (outcome.kind, outcome.out) == (Kind.OK, b"3 %d\n" % nice)


def test_a_crowd_that_has_gone_home_is_let_go():
    home = "import signal\nfor child in children: os.kill(child, 9), os.waitpid(child, 0)\n"
    more = "for _ in range(50): time.sleep(0.01)\nprint('let go')"
    outcome = beside(lambda pool: pool.run(CROWD + LOOKS + home + more))
    assert outcome.kind is Kind.OK
    assert outcome.out.endswith(b"let go\n")


def test_a_session_that_is_interrupted_in_a_crowd_keeps_its_variables():
    async def work(pool):
        session = pool.open_session()
        await pool.run("kept = 41", session=session)
        ended = await pool.run(CROWD + "while True: time.sleep(0.01)", session=session)
        return ended, await pool.run("print(kept + 1)", session=session)

    ended, after = beside(work, ONE.model_copy(update={"wall_seconds": 1.0}))
    assert ended.kind is Kind.TIMEOUT
    assert not ended.state_lost
    assert after.out == b"42\n"


def test_a_crowd_alone_gives_way_to_nobody():
    async def run():
        async with Pool(ONE) as pool:
            return await pool.run(f"{CROWD}time.sleep(1)\nprint({PRIORITY})")

    assert asyncio.run(run()).out == b"%d\n" % os.getpriority(os.PRIO_PROCESS, 0)


SPELLS = (
    "import time\n"
    "last, gaps, end = time.monotonic(), [], time.monotonic() + 4\n"
    "while time.monotonic() < end:\n"
    "    now = time.monotonic()\n"
    "    gaps += [now - last] * (now - last > 0.04)\n"
    "    last = now\n"
    "print(len(gaps), sum(gaps))"
)
"""Says how often it stood still for more than a moment, and for how many seconds in all."""


def spells(ended):
    """What a program said of how it stood still: how often, and for how many seconds."""
    count, seconds = ended.out.split()
    return int(count), float(seconds)


def test_programs_that_compute_for_long_take_turns_and_those_that_wait_are_let_be():
    async def work(pool):
        waiting = SPELLS.replace("now = ", "time.sleep(0.001)\n    now = ")
        computing = [pool.run(SPELLS) for _ in range(8)]
        return [spells(each) for each in await asyncio.gather(pool.run(waiting), *computing)]

    (_, waited), *computed = beside(work, ONE.model_copy(update={"calls_per_server": 16}))
    # Two of eight at a time: each is held for six turns of eight.
    assert min(count for count, _ in computed) >= 3
    assert waited < min(seconds for _, seconds in computed)


def test_programs_of_sessions_take_turns_like_others():
    async def work(pool):
        computing = [pool.run(SPELLS, session=pool.open_session()) for _ in range(8)]
        return [spells(each) for each in await asyncio.gather(*computing)]

    computed = beside(work, ONE.model_copy(update={"calls_per_server": 16}))
    assert min(count for count, _ in computed) >= 3


def test_programs_that_wait_for_turns_are_not_ended_for_it():
    # Two at a time, they take longer together than the limit of each, and each far less alone.
    short = "import time\nwhile time.process_time() < 0.2: pass"
    settings = ONE.model_copy(update={"calls_per_server": 40, "wall_seconds": 3.5})

    async def run():
        async with Pool(settings) as pool:
            return await asyncio.gather(*(pool.run(short) for _ in range(40)))

    assert {each.kind for each in asyncio.run(run())} == {Kind.OK}


def test_programs_that_take_turns_come_to_their_end():
    async def work(pool):
        counting = "total = 0\nfor number in range(5_000_000): total += number\nprint(total)"
        return await asyncio.gather(*(pool.run(counting) for _ in range(6)))

    outcomes = beside(work, ONE.model_copy(update={"calls_per_server": 16}))
    assert {(each.kind, each.out) for each in outcomes} == {(Kind.OK, b"12499997500000\n")}
