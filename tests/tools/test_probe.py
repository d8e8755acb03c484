"""The self-attack finds what is open. It is run against walls that are known to be weak."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from forethought.core.errors import RecipeError
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.probe import probe
from forethought.tools.settings import PythonSettings

STRONG = PythonSettings(memory_mb=128, processes=8)
WEAK = PythonSettings(isolation="process", allow_weak=True, memory_mb=256)


async def attack(settings):
    async with Pool(settings) as pool:
        await probe(pool, STRONG)


def test_every_attack_that_plain_processes_allow_is_named():
    try:
        with pytest.raises(RecipeError) as caught:
            asyncio.run(attack(WEAK))
    finally:
        for folder in ("/tmp", "/dev/shm"):
            for left in Path(folder).glob("left-*"):
                left.unlink()
    for name in (
        "a TCP connection to the host",
        "a UDP message to the host",
        "killing a process of the host",
        "reading a file or an environment of the host",
        "writing outside of /tmp",
        "more processes than tool.processes",
        "files that outlive their call",
        'tool.isolation="process"',
    ):
        assert name in str(caught.value)


def test_namespaces_withstand_every_attack():
    assert asyncio.run(attack(STRONG)) is None


@dataclass
class ScriptedRunner:
    """Says the same to every program."""

    outcome: Outcome

    async def run(self, code):
        return self.outcome


def test_limits_that_do_not_hold_are_named():
    unlimited = ScriptedRunner(Outcome(kind=Kind.OK, out=b"42\n"))
    with pytest.raises(RecipeError, match=r"more processes.*more memory.*files that outlive"):
        asyncio.run(probe(unlimited, STRONG))


def test_a_sandbox_that_cannot_even_multiply_is_refused():
    broken = ScriptedRunner(Outcome(kind=Kind.MEMORY, err=b"MemoryError"))
    with pytest.raises(RecipeError, match=r"6 \* 7, ended as memory"):
        asyncio.run(probe(broken, STRONG))
