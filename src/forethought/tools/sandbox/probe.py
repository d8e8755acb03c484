"""The sandbox attacks itself before it is used.

Whether an attack succeeded is read from the trusted side wherever that is possible: a connection
that arrived, a process that died, a secret in the output. Programs are only believed when they
incriminate themselves.
"""

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from forethought.core.errors import RecipeError
from forethought.tools.sandbox.attacks import ALLOCATE, FORK, LOOK, STAY, bait
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.settings import PythonSettings

_TRIES = 3
_CUT_SHORT = {Kind.TIMEOUT, Kind.CPU}
_LOOKS, _BETWEEN_LOOKS = 20, 0.1
"""Looks for a process that has been killed, and seconds between them."""


class Runner(Protocol):
    """Runs programs: the open pool, a service, or whatever else is to be attacked."""

    async def run(self, code: str, stdin: str = "") -> Outcome:
        """Run one program to its end. Raises `SandboxError`."""
        ...


async def try_out(runner: Runner) -> None:
    """Run a first program. Raises `RecipeError` if even that goes wrong."""
    outcome = await runner.run("6 * 7")
    if outcome.out != b"42\n":
        raise RecipeError(
            f"the Python tool's first program, 6 * 7, ended as {outcome.kind} with {outcome.out!r} "
            f"and {outcome.err!r}: raise tool.memory_mb, tool.wall_seconds or tool.cpu_seconds"
        )


async def attack(runner: Runner, settings: PythonSettings) -> Mapping[str, bool]:
    """Attack from within: every attack by what it would have done, and whether it succeeded.

    Attacks that a busy host kept from their end have neither succeeded nor failed: all are tried
    again. Raises `RecipeError` where that goes on.
    """
    for _ in range(_TRIES):
        found = await _attack(runner, settings)
        if found is not None:
            return found
    raise RecipeError(
        "the Python tool's attacks on itself were not over within tool.wall_seconds = "
        f"{settings.wall_seconds} and tool.cpu_seconds = {settings.cpu_seconds}, {_TRIES} times: "
        "this host is too busy; start again when less goes on, or raise them"
    )


async def _attack(runner: Runner, settings: PythonSettings) -> Mapping[str, bool] | None:
    """Each attack, and whether it succeeded; None where one was cut short."""
    with bait() as laid:
        name = f"left-{secrets.token_hex(4)}"
        reached, forked, held, stayed = await asyncio.gather(
            runner.run(laid.reach_out()),
            runner.run(FORK.format(processes=settings.processes)),
            runner.run(ALLOCATE.format(memory_mb=settings.memory_mb)),
            runner.run(STAY.format(name=name)),
        )
        looked = await runner.run(LOOK.format(name=name))
        if any(each.kind in _CUT_SHORT for each in (reached, forked, held, stayed, looked)):
            return None
        said = reached.out.decode("utf-8", "replace")
        return {
            **laid.taken,
            "reading a file or an environment of the host": laid.token in said,
            "writing outside of its own folder": "WROTE" in said,
            "raising a limit": "RAISED" in said,
            "making a user namespace": "NAMESPACE" in said,
            "more processes than tool.processes": _too_many(forked, settings),
            "more memory than tool.memory_mb": held.kind is not Kind.MEMORY,
            "a process that outlives its call": await stays_behind(name)
            or stayed.kind is not Kind.OK,
            "files that outlive their call": looked.out != b"[]\n",
            "nothing, not even the attacks": reached.kind is not Kind.OK,
        }


def _too_many(forked: Outcome, settings: PythonSettings) -> bool:
    return not forked.out.strip().isdigit() or int(forked.out) >= settings.processes


async def stays_behind(name: str) -> bool:
    """Whether a process of that name is there and does not go, which takes a busy host a while."""
    for _ in range(_LOOKS):
        if not _lives(name):
            return False
        await asyncio.sleep(_BETWEEN_LOOKS)
    return True


def _lives(name: str) -> bool:
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text(encoding="utf-8").strip() == name:
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False
