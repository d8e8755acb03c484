"""`assert` statements as cases: only where nothing that is expected stands in what is asked.

`assert f(1) == 2` is one: the program computes `f(1)` and never sees the 2. A program that is asked
for `all(x == 2 for x in f(1))` reads what is expected, and can make `all` whatever it likes: that
is none. Nor is what expects a value that is no literal, such as an object of a class.
"""

import ast
import builtins
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from forethought.core.errors import RecipeError
from forethought.tasks.cases import AssertCase

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
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: lambda left, right: left + right,
        ast.Sub: lambda left, right: left - right,
        ast.Mult: lambda left, right: left * right,
        ast.Div: lambda left, right: left / right,
    }
)
_MADE_OF: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "sorted": sorted}
)
_AROUND = frozenset(
    {"abs", "bool", "dict", "float", "int", "len", "list", "max", "min", "round", "str", "sum"}
    | {*_MADE_OF}
)
"""Built-in functions that may stand around the call: with it as all that they are given, they hold
nothing that is expected."""


_MOST_SHOWN = 200
"""Characters of a test that a message repeats."""


class UncheckableError(RecipeError):
    """A test cannot be made a case: what it expects could not be kept from the program."""


def assertion(line: str, setup: str = "") -> AssertCase:
    """A case from one `assert` statement: a call compared with a constant, or the call alone.

    Also `abs(call - constant) < constant` and `math.isclose(call, constant)`. What is called may
    not be built in or bound by `setup`, for then its arguments would tell what is expected.

    Raises `UncheckableError` for whatever else.

    >>> assertion("assert add(2, 3) == 5").expression
    'add(2, 3)'
    """
    test, bound = _tested(line), _bound(setup)
    try:
        asked, holds = _close(test) or _compared(test) or _alone(test)
    except (ValueError, TypeError, ArithmeticError, MemoryError, RecursionError) as error:
        raise _uncheckable(line) from error
    function = _called(asked)
    if function is None or {function, "*"} & {*vars(builtins), *bound}:
        raise _uncheckable(line)
    return AssertCase(function=function, expression=ast.unparse(asked), holds=holds, setup=setup)


def _uncheckable(line: str) -> UncheckableError:
    return UncheckableError(
        f"{_cut(line)}: what is expected could not be kept from the program; write "
        "`assert call == value`, with a function of the program called on one side and a constant "
        "on the other"
    )


def _cut(text: str) -> str:
    return repr(text.strip()[:_MOST_SHOWN])


Asked = tuple[ast.expr, Callable[[Any], bool]]
"""What a program is asked for, and what must hold of its value."""


def _tested(line: str) -> ast.expr:
    """What an `assert` statement says."""
    try:
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError) as error:
        raise UncheckableError(f"{_cut(line)} is no assert statement: {error}") from error
    if not isinstance(statement, ast.Assert):
        raise UncheckableError(f"{_cut(line)} is no assert statement")
    return statement.test


def _close(test: ast.expr) -> Asked | None:
    """`abs(call - constant) < constant` and `math.isclose(call, constant)`."""
    match test:
        case ast.Compare(
            left=ast.Call(
                func=ast.Name(id="abs"), args=[ast.BinOp(left=asked, op=ast.Sub(), right=other)]
            ),
            ops=[ast.Lt() | ast.LtE() as compared],
            comparators=[limit],
        ):
            near, most, compare = _constant(other), _constant(limit), _COMPARE[type(compared)]
            return asked, lambda value: compare(abs(value - near), most)
        case ast.Call(
            func=ast.Name(id="isclose") | ast.Attribute(value=ast.Name(id="math"), attr="isclose"),
            args=[asked, other],
            keywords=named,
        ):
            near = _constant(other)
            limits = {str(each.arg): float(_constant(each.value)) for each in named}
            return asked, lambda value: math.isclose(value, near, **limits)
        case _:
            return None


def _compared(test: ast.expr) -> Asked | None:
    """`call == constant`, either side first, and the other comparisons."""
    if not isinstance(test, ast.Compare):
        return None
    (operation,), (right,) = test.ops, test.comparators
    left, compare = test.left, _COMPARE[type(operation)]
    with suppress(ValueError):
        expected = _constant(right)
        return left, lambda value: compare(value, expected)
    expected = _constant(left)
    return right, lambda value: compare(expected, value)


def _alone(test: ast.expr) -> Asked:
    """A call that must be true or, after `not`, false."""
    asked, wanted = test, True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked, wanted = test.operand, False
    truth = ast.Call(func=ast.Name(id="bool"), args=[asked], keywords=[])
    return truth, lambda value: value is wanted


def _called(asked: ast.expr) -> str | None:
    """The function whose call is asked for, alone or with `_AROUND` around it; None if neither."""
    while isinstance(asked, ast.Call) and isinstance(asked.func, ast.Name):
        inner = asked.args[0] if len(asked.args) == 1 and not asked.keywords else None
        if asked.func.id not in _AROUND or not isinstance(inner, ast.Call):
            return asked.func.id
        asked = inner
    return None


def _bound(setup: str) -> set[str]:
    """The names that a setup binds; `*` among them where it imports all of a module's."""
    try:
        nodes = [*ast.walk(ast.parse(setup))]
    except (SyntaxError, ValueError) as error:
        raise UncheckableError(f"its setup, {_cut(setup)}, is no Python: {error}") from error
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _constant(node: ast.expr) -> Any:
    """The value of a literal, or of arithmetic and collections made of some.

    Raises `ValueError` for anything else, and what the arithmetic raises.
    """
    match node:
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _ARITHMETIC:
            numbers = [_constant(left), _constant(right)]
            if not all(isinstance(each, int | float | complex) for each in numbers):
                raise ValueError(f"arithmetic with something else than numbers: {numbers}")
            return _ARITHMETIC[type(operation)](*numbers)
        case ast.Tuple(elts=parts):
            return tuple(map(_constant, parts))
        case ast.List(elts=parts):
            return [*map(_constant, parts)]
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in _MADE_OF:
            return _MADE_OF[name](_constant(inner))
        case _:
            return ast.literal_eval(node)
