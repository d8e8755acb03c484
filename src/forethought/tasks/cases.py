"""Tests of a program: what it is given, and what it must come to.

A program under test is given only what it must work on: an input, or a call to compute. What it
should have come to is compared here, on what it wrote. So it finds no answer to read, and can
forge no verdict: to be right it must write what is right.

Not covered: values that are no literals, such as objects of a class or infinity. No program can
show them, so that one which comes to such a value fails.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forethought.tasks.programs import NO_PYTHON

MOST_KEPT = 64 * 1024
"""Bytes of output that the sandbox keeps; of more, it keeps the two ends."""
MOST_SHOWN = MOST_KEPT - 100
"""Bytes that a value may take, written out: the others are for the marks around it."""

# The program is a module of its own that is not `__main__`, as where such tests come from, so that
# what it does only as a script is left undone. Values of classes derived from built-in ones are
# equal to these, and shown as these.
_HARNESS = """\
import numbers, sys, types
def plain(value):
    if type(value) in (bool, int, float, complex, str, bytes):
        return value
    if isinstance(value, dict):
        return {{plain(key): plain(each) for key, each in dict.items(value)}}
    for kind, shown in ((list, list), (tuple, tuple), (set, set), (frozenset, set)):
        if isinstance(value, kind):
            return shown(map(plain, kind.__iter__(value)))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value
module = types.ModuleType("program")
sys.modules["program"] = module
for part, name in (({source!r}, "main.py"), ({setup!r}, "setup.py")):
    exec(compile(part, name, "exec", dont_inherit=True), module.__dict__)
value = eval({expression!r}, module.__dict__)
print({mark!r}, repr(plain(value)), sep="", end={mark!r})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """What a program reads, and what it must write; blanks at the ends of lines do not count.

    >>> InputCase(stdin="2 3", stdout="5").judge("5 \\n")
    True
    """

    stdin: str
    stdout: str

    @property
    def least_bytes(self) -> int:
        """Bytes of the shortest output that is right, with the end of its last line."""
        return sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in _lines(self.stdout))

    def program(self, source: str, mark: str) -> str:
        """What is run: the program, whose last expression is not displayed as at a prompt."""
        return f"{source}\npass\n"

    def judge(self, written: str, mark: str = "") -> bool:
        """Whether it wrote what it should."""
        return _lines(written) == _lines(self.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertCase:
    """A call for the program to compute, and what must hold of its value.

    `asserts.assertion` makes it. `function` is the name of what is called; `setup` is run between
    the program and the call.
    """

    function: str
    expression: str
    holds: Callable[[Any], bool]
    setup: str = ""

    @property
    def stdin(self) -> str:
        """What the program reads: nothing."""
        return ""

    def program(self, source: str, mark: str) -> str:
        """What is run: the program, then its value of the expression between marks."""
        return _HARNESS.format(
            source=source, setup=self.setup, expression=self.expression, mark=mark
        )

    def judge(self, written: str, mark: str) -> bool:
        """Whether the value that it showed last is as expected; one that is no literal is not."""
        parts = written.rsplit(mark, 2)
        if len(parts) != 3 or len(parts[1]) > MOST_SHOWN:
            return False
        try:
            return bool(self.holds(ast.literal_eval(parts[1])))
        except (*NO_PYTHON, TypeError, ArithmeticError):
            return False


Case = InputCase | AssertCase


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
