"""Checks a program against tests, in the sandbox, with what is expected kept out of it.

A program under test is given only what it must work on: an input, or an expression to compute.
What it should have come to is compared here, on what it wrote. So it finds no answer to read,
and can forge no verdict: to be right it must write what is right. Every test is a call of its
own, so that nothing is carried from one to the next.

Not covered: tests whose truth only the program's own process can tell, such as `assert f(1)` with
a condition that a program could make true of everything; those are judged by the value it shows.
"""

import ast
import asyncio
import operator
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from forethought.core.errors import RecipeError
from forethought.tools.sandbox.outcome import Kind, Outcome
from forethought.tools.sandbox.probe import Runner

_LONGEST = 100_000
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
        ast.In: lambda left, right: left in right,
        ast.NotIn: lambda left, right: left not in right,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """What a program reads, and what it must write; blanks at the ends of lines do not count.

    >>> InputCase(stdin="2 3", stdout="5").judge("5 \\n")
    True
    """

    stdin: str
    stdout: str

    def program(self, source: str, mark: str) -> str:
        """What is run: the program as it is."""
        return source

    def judge(self, written: str, mark: str = "") -> bool:
        """Whether it wrote what it should."""
        return _lines(written) == _lines(self.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertCase:
    """An `assert` of which one side, the expected one, is a literal. Made by `assertion`."""

    expression: str
    compare: type[ast.cmpop]
    expected: Any
    expected_left: bool = False
    stdin: str = ""

    def program(self, source: str, mark: str) -> str:
        """What is run: the program, then its value of the expression behind a mark."""
        shown = f"print({mark!r}, repr({self.expression}), sep='', end={mark!r})"
        return f"{source}\nimport builtins as _builtins\n_builtins.{shown}\n"

    def judge(self, written: str, mark: str) -> bool:
        """Whether the value that it showed last is as expected; one that is no literal is not."""
        parts = written.rsplit(mark, 2)
        if len(parts) != 3 or len(parts[1]) > _LONGEST:
            return False
        try:
            value = ast.literal_eval(parts[1])
            sides = (self.expected, value) if self.expected_left else (value, self.expected)
            return bool(_COMPARE[self.compare](*sides))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return False


Case = InputCase | AssertCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How a program did: one kind of ending and one verdict for each case, in their order.

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


def assertion(line: str) -> AssertCase:
    """A case from one `assert` statement. Raises `RecipeError` if nothing in it can be kept back.

    >>> assertion("assert add(2, 3) == 5").expression
    'add(2, 3)'
    """
    try:
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError) as error:
        raise RecipeError(f"{line!r} is no assert statement: {error}") from error
    if not isinstance(statement, ast.Assert):
        raise RecipeError(f"{line!r} is no assert statement")
    test = statement.test
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return AssertCase(
            expression=f"bool({ast.unparse(test.operand)})", compare=ast.Is, expected=False
        )
    if not isinstance(test, ast.Compare):
        return AssertCase(expression=f"bool({ast.unparse(test)})", compare=ast.Is, expected=True)
    if len(test.ops) != 1:
        raise RecipeError(f"{line!r} chains comparisons: write one assert for each")
    left, right = test.left, test.comparators[0]
    for asked, kept, is_left in ((left, right, False), (right, left, True)):
        try:
            expected = ast.literal_eval(kept)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        return AssertCase(
            expression=ast.unparse(asked),
            compare=type(test.ops[0]),
            expected=expected,
            expected_left=is_left,
        )
    raise RecipeError(
        f"{line!r} has no literal on either side, so that what is expected could not be kept from "
        "the program: write `assert call == value`"
    )


async def check(runner: Runner, source: str, cases: Sequence[Case]) -> Checked:
    """Run a program on every case. Raises `SandboxError` when infrastructure fails, never a wrong
    verdict for it."""
    outcomes = await asyncio.gather(*(_run(runner, source, case) for case in cases))
    return Checked(
        kinds=tuple(outcome.kind for outcome, _ in outcomes),
        passed=tuple(passed for _, passed in outcomes),
    )


async def _run(runner: Runner, source: str, case: Case) -> tuple[Outcome, bool]:
    mark = f"\n{secrets.token_hex(16)}\n"
    outcome = await runner.run(case.program(source, mark), case.stdin)
    whole = outcome.kind is Kind.OK and not outcome.truncated
    written = outcome.out.decode("utf-8", "replace")
    return outcome, whole and case.judge(written, mark)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
