"""Checks a program against tests, in the sandbox, with what is expected kept out of it.

Every test is a call of its own, so that nothing is carried from one to the next. What a test hands
to the program, and how it judges what that wrote, is the test's: see `tasks/cases.py`.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from forethought.tools.arguments import ArgumentError, checked_code
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.probe import Runner

AT_ONCE = 8
"""Cases of one program that are run at the same time."""


class Case(Protocol):
    """One test of a program."""

    @property
    def stdin(self) -> str:
        """What the program reads."""
        ...

    def program(self, source: str, mark: str) -> str:
        """What is run to test the program in `source`; `mark` is a text that nobody can guess."""
        ...

    def judge(self, written: str, mark: str) -> bool:
        """Whether it wrote what it should."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How a program did: one kind of ending and one verdict for each case, in their order.

    A program that wrote more than the sandbox keeps ended at the output limit.

    >>> Checked(kinds=(Kind.OK, Kind.TIMEOUT), passed=(True, False)).share
    0.5
    """

    kinds: tuple[Kind, ...]
    passed: tuple[bool, ...]

    @property
    def right(self) -> bool:
        """Whether every case passed, and there were some."""
        return bool(self.passed) and all(self.passed)

    @property
    def share(self) -> float:
        """The share of cases that passed."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0


async def check(runner: Runner, source: str, cases: Sequence[Case]) -> Checked:
    """Run a program on every case, a few at a time, however many there are.

    A program that no tool would take (too long, say) passes none.
    Raises `SandboxError` when infrastructure fails, never a wrong verdict for it, and not before
    the other cases have ended.
    """
    try:
        checked_code(source)
    except ArgumentError:
        refused = (Kind.REJECTED,) * len(cases)
        return Checked(kinds=refused, passed=(False,) * len(cases))
    places = asyncio.Semaphore(AT_ONCE)
    ended = await asyncio.gather(
        *(_run(runner, source, case, places) for case in cases), return_exceptions=True
    )
    found: list[tuple[Kind, bool]] = []
    for one in ended:
        if isinstance(one, BaseException):
            raise one
        found.append(one)
    return Checked(
        kinds=tuple(kind for kind, _ in found), passed=tuple(passed for _, passed in found)
    )


async def _run(
    runner: Runner, source: str, case: Case, places: asyncio.Semaphore
) -> tuple[Kind, bool]:
    mark = f"\n{secrets.token_hex(16)}\n"
    async with places:
        outcome: Outcome = await runner.run(case.program(source, mark), case.stdin)
    kind = Kind.OUTPUT if outcome.kind is Kind.OK and outcome.truncated else outcome.kind
    written = outcome.out.decode("utf-8", "replace")
    return kind, kind is Kind.OK and case.judge(written, mark)
