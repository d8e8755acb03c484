"""Problems whose answer is a program, from JSON lines in the shapes in which they are published.

Three are read: `test_list` with asserts (MBPP, 2108.07732), `test` with a function `check` and an
`entry_point` (HumanEval, 2107.03374), and `public_test_cases` with inputs and outputs
(LiveCodeBench, 2403.07974). `agents/code_grader.py` runs the tests.
"""

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.tasks.asserts import UncheckableError, assertion
from forethought.tasks.cases import MOST_KEPT, Case, InputCase
from forethought.tasks.files import read_rows, text_field
from forethought.tasks.programs import ASKED, NO_PYTHON, fenced

_PLAN = "i write the program and try it."
_CLOSING = "so the program is\n"
_READING = "import io, sys\nsys.stdin = io.StringIO({stdin!r})\n"

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """The problems of a file, and a sentence for each row that cannot be checked."""

    problems: tuple[Problem, ...]
    uncheckable: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What a row says, whatever its shape; `examples` are tests that the question may show."""

    question: str
    tests: Sequence[str | Mapping[str, str]]
    setup: str = ""
    solution: str = ""
    examples: Sequence[str] = ()


def code_problems(path: Path, shown_tests: int) -> CodeFile:
    """The problems of a file (`.jsonl` or `.jsonl.gz`), in its order.

    `data` holds `tests` and `setup` for the grader and, where a row has a solution, what shows it:
    a `plan`, a `program` that tries the solution out, and the `closing` that answers with it. The
    question of a row with a `test_list` shows the first `shown_tests` of them.

    A row with a test that is no case, or without tests, is `uncheckable`. Raises `RecipeError`
    naming file and row for one that cannot be read.
    """
    problems, uncheckable = list[Problem](), list[str]()
    for row, fields in read_rows(path):
        name = f"{path.name.partition('.')[0]}-{row}"
        try:
            problems.append(_problem(name, _read(path, row, fields), shown_tests))
        except UncheckableError as error:
            uncheckable.append(f"row {row}: {error}")
    return CodeFile(problems=tuple(problems), uncheckable=tuple(uncheckable))


def cases_of(problem: Problem) -> tuple[Case, ...]:
    """The tests of a problem from `code_problems`. Raises `RecipeError` for one without."""
    tests, setup = problem.data.get("tests"), str(problem.data.get("setup", ""))
    if not tests:
        raise RecipeError(
            f'problem {problem.id} has no tests to check a program by: use problems.type = "code"'
        )
    return tuple(_case(test, setup) for test in tests)


def _case(test: str | Mapping[str, str], setup: str) -> Case:
    if isinstance(test, str):
        return assertion(test, setup)
    case = InputCase(stdin=test["input"], stdout=test["output"])
    if case.least_bytes > MOST_KEPT:
        raise UncheckableError(
            f"a test expects {case.least_bytes} bytes of output; {MOST_KEPT} is the most"
        )
    return case


def _problem(name: str, row: _Row, shown_tests: int) -> Problem:
    cases = [_case(test, row.setup) for test in row.tests]
    if not cases:
        raise UncheckableError("it has no tests")
    shown = "\n".join(["This must hold:", *row.examples[:shown_tests]])
    parts = [row.question, shown if row.examples[:shown_tests] else "", ASKED]
    data: dict[str, Any] = {"tests": [*row.tests], "setup": row.setup, "closing": ""}
    if row.solution:
        program, closing = _tried(row, cases[0]), _CLOSING + fenced(row.solution)
        data |= {"plan": _PLAN, "program": program, "closing": closing}
    return Problem(
        id=name,
        prompt="\n\n".join(part for part in parts if part),
        answer=row.solution or f"a program that passes {len(cases)} tests",
        domain="code",
        data=data,
    )


def _tried(row: _Row, case: Case) -> str:
    """The solution, and what it comes to in one of its tests."""
    if isinstance(case, InputCase):
        return _READING.format(stdin=case.stdin) + row.solution
    parts = (row.solution, row.setup, f"print({case.expression})")
    return "\n".join(part for part in parts if part)


def _read(path: Path, row: int, fields: Fields) -> _Row:
    for key, read in _SHAPES.items():
        if key in fields:
            return read(path, row, fields)
    raise RecipeError(
        f"{path}, row {row}: no tests: give 'test_list' (as MBPP does), 'test' and 'entry_point' "
        "(HumanEval), or 'public_test_cases' (LiveCodeBench)"
    )


def _mbpp(path: Path, row: int, fields: Fields) -> _Row:
    tests = _texts(path, row, fields, "test_list")
    given = fields.get("test_imports") is not None
    imports = _texts(path, row, fields, "test_imports") if given else []
    code = _program(path, row, fields, "test_setup_code")
    setup = "\n".join(part for part in (*imports, code) if part)
    functions = {assertion(test, setup).function for test in tests}
    if len(functions) > 1:
        raise UncheckableError(f"its tests call several functions: {', '.join(sorted(functions))}")
    asked = text_field(path, row, fields, "text" if "text" in fields else "prompt")
    named = "".join(f"\n\nThe function is called `{name}`." for name in functions)
    return _Row(
        question=asked + named,
        tests=tests,
        setup=setup,
        solution=_program(path, row, fields, "code"),
        examples=tests,
    )


def _humaneval(path: Path, row: int, fields: Fields) -> _Row:
    # Not trimmed: the solution goes on where the prompt ends.
    text_field(path, row, fields, "prompt")
    prompt, name = fields["prompt"], text_field(path, row, fields, "entry_point")
    solution = _program(path, row, fields, "canonical_solution")
    return _Row(
        question=f"Complete this program:\n\n{fenced(prompt.strip())}",
        tests=_checks(path, row, text_field(path, row, fields, "test"), name),
        solution=(prompt + solution).strip() if solution else "",
    )


def _checks(path: Path, row: int, test: str, name: str) -> list[str]:
    """What the function `check` asserts of the function that it is given, asserted of `name`."""
    try:
        functions = [each for each in ast.parse(test).body if isinstance(each, ast.FunctionDef)]
    except NO_PYTHON as error:
        raise RecipeError(
            f"{path}, row {row}: 'test' is no Python: {type(error).__name__}: {error}"
        ) from error
    if [each.name for each in functions] != ["check"] or len(functions[0].args.args) != 1:
        raise UncheckableError("'test' is to be one function, `check(candidate)`")
    (check,) = functions
    renamed = _Renamed(check.args.args[0].arg, name)
    try:
        return [
            ast.unparse(renamed.visit(statement))
            for statement in check.body
            if not _says_nothing(statement)
        ]
    except RecursionError as error:
        raise UncheckableError("'test' is nested too deeply") from error


def _says_nothing(statement: ast.stmt) -> bool:
    """Whether it is a docstring, a bare name or `assert True`: such stand among the tests."""
    match statement:
        case ast.Expr(value=ast.Constant() | ast.Name()):
            return True
        case ast.Assert(test=ast.Constant(value=value)):
            return bool(value)
        case _:
            return False


class _Renamed(ast.NodeTransformer):
    """One name in place of another."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """The node, or one with the new name."""
        return ast.Name(id=self._new, ctx=node.ctx) if node.id == self._old else node


def _livecodebench(path: Path, row: int, fields: Fields) -> _Row:
    found = fields["public_test_cases"]
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError) as error:
            raise RecipeError(f"{path}, row {row}: 'public_test_cases': {error}") from error
    if not isinstance(found, list) or not all(map(_is_input_test, cast("list[object]", found))):
        raise RecipeError(
            f"{path}, row {row}: 'public_test_cases' must be a list of objects with the texts "
            "'input' and 'output'"
        )
    tests = cast("list[dict[str, str]]", found)
    if any(test.get("testtype", "stdin") != "stdin" for test in tests):
        raise UncheckableError("a test of it calls a function and reads no input")
    return _Row(
        question=text_field(path, row, fields, "question_content")
        + "\n\nThe program reads standard input and writes to standard output.",
        tests=[{"input": test["input"], "output": test["output"]} for test in tests],
        solution=_program(path, row, fields, "code"),
    )


_SHAPES: Mapping[str, Callable[[Path, int, Fields], _Row]] = {
    "test_list": _mbpp,
    "entry_point": _humaneval,
    "public_test_cases": _livecodebench,
}
"""How a row is read, by the key that tells its shape."""


def _is_input_test(test: object) -> bool:
    if not isinstance(test, dict):
        return False
    fields = cast("dict[str, object]", test)
    return all(isinstance(fields.get(name), str) for name in ("input", "output"))


def _texts(path: Path, row: int, fields: Fields, name: str) -> list[str]:
    found = fields[name]
    if isinstance(found, list) and all(isinstance(one, str) for one in cast("list[object]", found)):
        return [one.strip() for one in cast("list[str]", found)]
    raise RecipeError(f"{path}, row {row}: {name!r} must be a list of texts")


def _program(path: Path, row: int, fields: Fields, name: str) -> str:
    """The program in a field, its lines ending as Python's do; "" where there is none or null."""
    found = fields.get(name)
    if found is None:
        return ""
    if isinstance(found, str):
        return found.replace("\r\n", "\n").rstrip()
    raise RecipeError(f"{path}, row {row}: {name!r} must be text, or be left out")
