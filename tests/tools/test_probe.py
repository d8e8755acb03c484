"""The self-attack finds what is open. It is run against walls that are known to be weak."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from forethought.core.errors import RecipeError
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.probe import attack, stays_behind, try_out
from forethought.tools.settings import PythonSettings

STRONG = PythonSettings(memory_mb=128, processes=8)
WEAK = PythonSettings(tier="none", memory_mb=256)


def attacks_on(settings):
    async def run():
        async with Pool(settings) as pool:
            return await attack(pool, STRONG)

    return {name for name, succeeded in asyncio.run(run()).items() if succeeded}


def test_every_attack_that_plain_processes_allow_is_named():
    try:
        found = attacks_on(WEAK)
    finally:
        for folder in ("/tmp", "/dev/shm"):
            for left in Path(folder).glob("left-*"):
                left.unlink()
    assert found >= {
        "a TCP connection to the host",
        "a UDP message to the host",
        "a message to an abstract socket",
        "a message to a socket with a path",
        "killing a process of the host",
        "changing a limit of a process of the host",
        "changing a file of the host",
        "reading a file or an environment of the host",
        "writing outside of its own folder",
        "more processes than tool.processes",
        "files that outlive their call",
    }


def test_namespaces_withstand_every_attack():
    assert attacks_on(STRONG.model_copy(update={"tier": "namespaces"})) == set()


@dataclass
class SlowAtFirst:
    """A pool on a host that was busy: the first programs are cut short."""

    pool: Pool
    left: int = 2

    async def run(self, code, stdin=""):
        outcome = await self.pool.run(code, stdin)
        self.left -= 1
        return replace(outcome, kind=Kind.TIMEOUT) if self.left >= 0 else outcome


@dataclass
class ScriptedRunner:
    """Says the same to every program."""

    outcome: Outcome

    async def run(self, code, stdin=""):
        return self.outcome


def test_limits_that_do_not_hold_are_named():
    unlimited = ScriptedRunner(Outcome(kind=Kind.OK, out=b"42\n"))
    found = asyncio.run(attack(unlimited, STRONG))
    assert {name for name, succeeded in found.items() if succeeded} == {
        "more processes than tool.processes",
        "more memory than tool.memory_mb",
        "files that outlive their call",
    }


def test_attacks_that_a_busy_host_cuts_short_are_tried_again():
    async def run():
        async with Pool(STRONG.model_copy(update={"tier": "namespaces"})) as pool:
            return await attack(SlowAtFirst(pool), STRONG)

    assert not any(asyncio.run(run()).values())


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.CPU])
def test_attacks_that_are_always_cut_short_refuse_a_host_and_not_a_tier(kind):
    stalled = ScriptedRunner(Outcome(kind=kind))
    with pytest.raises(RecipeError, match=r"tool\.wall_seconds = .*this host is too busy"):
        asyncio.run(attack(stalled, STRONG))


def test_a_process_that_is_merely_slow_to_go_has_not_stayed(tmp_path):
    named = tmp_path / "slow-to-go"
    named.symlink_to("/bin/sleep")

    async def run():
        bystander = await asyncio.create_subprocess_exec(named, "0.3")
        stays, _ = await asyncio.gather(stays_behind(named.name), bystander.wait())
        return stays

    assert asyncio.run(run()) is False


def test_a_sandbox_that_cannot_even_multiply_is_refused():
    broken = ScriptedRunner(Outcome(kind=Kind.MEMORY, err=b"MemoryError"))
    with pytest.raises(RecipeError, match=r"6 \* 7, ended as memory"):
        asyncio.run(try_out(broken))
