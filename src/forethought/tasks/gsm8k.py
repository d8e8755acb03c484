"""GSM8K: grade-school word problems with a worked solution (Cobbe et al. 2021, arXiv:2110.14168).

A solution marks each calculation as `<<48/2=24>>` and ends in `#### 72`. The marks become a
program that a demonstrator can run; where they do not lead to the answer, neither does it.
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.tasks.files import read_rows, text_field
from forethought.tasks.programs import NO_PYTHON

_MARK = re.compile(r"<<([^<>]*)>>")
_CALCULATION = re.compile(r"[0-9+\-*/(). ]+")
_PERCENT = re.compile(r"([0-9.]+)%")
_LEADING_ZEROS = re.compile(r"(?<![0-9.])0+(?=[0-9])")


def gsm8k_problems(path: Path) -> list[Problem]:
    """The problems of a GSM8K file (`.jsonl` or `.jsonl.gz`), in its order.

    `data["plan"]` is the solution in words, `data["program"]` its calculations as Python, absent
    where a mark is not plain arithmetic. Raises `RecipeError` naming file and row.
    """
    name = path.name.partition(".")[0]
    return [_problem(path, row, f"gsm8k-{name}-{row}", fields) for row, fields in read_rows(path)]


def _problem(path: Path, row: int, name: str, fields: Mapping[str, Any]) -> Problem:
    question = text_field(path, row, fields, "question")
    solution, mark, answer = text_field(path, row, fields, "answer").rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not answer:
        raise RecipeError(
            f"{path}, row {row}: 'answer' must end in '#### <number>', got "
            f"{fields['answer'][-60:]!r}"
        )
    program = _program(solution)
    data = {"plan": _plan(solution)} | ({"program": program} if program else {})
    return Problem(id=name, prompt=question, answer=answer, domain="gsm8k", data=data)


def calculations(problem: Problem) -> int:
    """How many calculations the marked solution makes; 0 where they are not marked."""
    program = str(problem.data.get("program", ""))
    return max(0, len(program.splitlines()) - 1)  # the last line prints


def _plan(solution: str) -> str:
    lines = _MARK.sub("", solution).split("\n")
    return "\n".join(line.strip() for line in lines if line.strip())


def _program(solution: str) -> str | None:
    """Each marked calculation as one line, then the last one printed; None without any."""
    steps = [_step(mark.partition("=")[0]) for mark in _MARK.findall(solution)]
    known = [step for step in steps if step is not None]
    if not known or len(known) < len(steps):
        return None
    lines = [f"x{number} = {step}" for number, step in enumerate(known, start=1)]
    # Ten digits: a whole number is printed without a point, and the noise of floats is cut.
    return "\n".join([*lines, f'print(f"{{x{len(known)}:.10g}}")'])


def _step(calculation: str) -> str | None:
    """The calculation as Python, or None where it is none."""
    step = _PERCENT.sub(r"(\1/100)", calculation.strip().replace(",", ""))
    step = _LEADING_ZEROS.sub("", step)
    if not _CALCULATION.fullmatch(step):
        return None
    try:
        ast.parse(step, mode="eval")
    except NO_PYTHON:
        return None
    return step
