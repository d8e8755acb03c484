"""Turning a program that is right into one that is guarded, or into one that is broken.

Works on text, for short programs whose last line prints the answer. Nothing is run here.
"""

from dataclasses import dataclass
from random import Random

_MISSPELT = {"print(": "prin(", "sorted(": "sort(", "sum(": "sm("}


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A program with one fault that Python is sure to refuse, and words that name the fault.

    >>> Broken(program="print(1", fault="a bracket is missing.").fault
    'a bracket is missing.'
    """

    program: str
    fault: str


def guarded(program: str, check: str) -> str:
    """The program with a check of its answer `x` before it is printed.

    With an empty check, or where the last line is not a plain `print(...)`, it prints an arithmetic
    error instead of failing with it.

    >>> print(guarded("print(6*7)", "x>0"))
    x=6*7
    assert x>0
    print(x)
    """
    *before, last = program.split("\n")
    if check and last.startswith("print(") and last.endswith(")"):
        value = last.removeprefix("print(").removesuffix(")")
        return "\n".join([*before, f"x={value}", f"assert {check}", "print(x)"])
    inner = "".join(f" {line}\n" for line in program.split("\n"))
    return f"try:\n{inner}except ArithmeticError as e:\n print(e)"


def broken(program: str, rng: Random) -> Broken:
    """The program with a bracket missing, a name misspelt or an import left out.

    >>> broken("print(6*7)", Random(1)).program
    'print(6*7'
    """
    return rng.choice([*_unclosed(program), *_misspelt(program), *_not_imported(program)])


def _unclosed(program: str) -> list[Broken]:
    # Appending a bracket that never closes breaks a program that does not end in one.
    unclosed = program[:-1] if program.endswith(")") else f"{program}\nprint("
    return [Broken(program=unclosed, fault="a bracket is missing.")]


def _misspelt(program: str) -> list[Broken]:
    return [
        Broken(program=program.replace(name, wrong, 1), fault="a name is misspelt.")
        for name, wrong in _MISSPELT.items()
        if name in program
    ]


def _not_imported(program: str) -> list[Broken]:
    first, _, rest = program.partition("\n")
    if not first.startswith(("import ", "from ")) or not rest:
        return []
    return [Broken(program=rest, fault="an import is missing.")]
