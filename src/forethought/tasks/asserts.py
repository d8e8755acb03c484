"""`assert` statements as cases: only where nothing that is expected stands in what is asked.

`assert f(1) == 2` is one: the program computes `f(1)` and never sees the 2. A program that is asked
for `all(x == 2 for x in f(1))` reads what is expected, and can make `all` whatever it likes: that
is none. Nor is what expects a value that is no literal, such as an object of a class or infinity,
or what no value meets, such as `f(1) in 5`.
"""

import ast
import builtins
import math
import operator
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from forethought.core.errors import RecipeError
from forethought.tasks.cases import MOST_SHOWN, AssertCase
from forethought.tasks.programs import NO_PYTHON

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
    """A test cannot be made a case: it would tell what it expects, or no program could pass it."""


def assertion(line: str, setup: str = "") -> AssertCase:
    """A case from one `assert` statement: a call compared with a constant, or the call alone.

    Also `abs(call - constant) < constant` and `math.isclose(call, constant)`. What is called may
    not be built in or bound by `setup`, for then its arguments would tell what is expected. A value
    to be equal to takes at most `MOST_SHOWN` bytes, written out.

    Raises `UncheckableError` for whatever else.

    >>> assertion("assert add(2, 3) == 5").expression
    'add(2, 3)'
    """
    test, bound = _tested(line), _bound(setup)
    try:
        asked, holds = _close(test) or _compared(test) or _alone(test)
        expression = ast.unparse(asked)
    except (*NO_PYTHON, TypeError, ArithmeticError) as error:
        raise _uncheckable(line) from error
    function = _called(asked)
    if function is None or {function, "*"} & {*vars(builtins), *bound}:
        raise _uncheckable(line)
    return AssertCase(function=function, expression=expression, holds=holds, setup=setup)


def _uncheckable(line: str) -> UncheckableError:
    return UncheckableError(
        f"{_cut(line)}: what is expected could not be kept from the program, or no value that a "
        "program can show meets it; write `assert call == value`, with a function of the program "
        "called on one side and a constant on the other"
    )


def _cut(text: str) -> str:
    return repr(text.strip()[:_MOST_SHOWN])


Asked = tuple[ast.expr, Callable[[Any], bool]]
"""What a program is asked for, and what must hold of its value."""


def _tested(line: str) -> ast.expr:
    """What an `assert` statement says."""
    try:
        (statement,) = ast.parse(line.strip()).body
    except NO_PYTHON as error:
        raise UncheckableError(
            f"{_cut(line)} is no assert statement: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(statement, ast.Assert):
        raise UncheckableError(f"{_cut(line)} is no assert statement")
    return statement.test


def _close(test: ast.expr) -> Asked | None:
    """`abs(call - constant) < constant` and `math.isclose(call, constant)`.

    Raises `ValueError` or `TypeError` where not even the constant is close to itself.
    """
    match test:
        case ast.Compare(
            left=ast.Call(
                func=ast.Name(id="abs"), args=[ast.BinOp(left=asked, op=ast.Sub(), right=other)]
            ),
            ops=[ast.Lt() | ast.LtE() as compared],
            comparators=[limit],
        ):
            near, most, compare = _expected(other), _expected(limit), _COMPARE[type(compared)]

            def holds(value: Any) -> bool:
                return compare(abs(value - near), most)
        case ast.Call(
            func=ast.Name(id="isclose") | ast.Attribute(value=ast.Name(id="math"), attr="isclose"),
            args=[asked, other],
            keywords=named,
        ):
            near = _expected(other)
            limits = {str(each.arg): float(_expected(each.value)) for each in named}

            def holds(value: Any) -> bool:
                return math.isclose(value, near, **limits)

        case _:
            return None
    if not holds(near):
        raise ValueError(f"not even {near!r} is close to itself")
    return asked, holds


def _compared(test: ast.expr) -> Asked | None:
    """`call == constant`, either side first, and the other comparisons."""
    if not isinstance(test, ast.Compare):
        return None
    (operation,), (right,) = test.ops, test.comparators
    left, compare = test.left, _COMPARE[type(operation)]
    with suppress(ValueError):
        expected = _meetable(operation, _expected(right))
        if isinstance(operation, ast.In | ast.NotIn) and not isinstance(expected, Container):
            raise TypeError(f"{expected!r} contains nothing")
        return left, lambda value: compare(value, expected)
    expected = _meetable(operation, _expected(left))
    return right, lambda value: compare(expected, value)


def _meetable(operation: ast.cmpop, expected: Any) -> Any:
    """The constant; raises `ValueError` where it must be equalled and is too long to be kept."""
    if isinstance(operation, ast.Eq) and len(repr(expected).encode()) > MOST_SHOWN:
        raise ValueError(f"longer than {MOST_SHOWN} bytes")
    return expected


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
    except NO_PYTHON as error:
        raise UncheckableError(
            f"its setup, {_cut(setup)}, is no Python: {type(error).__name__}: {error}"
        ) from error
    found = set[str]()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _expected(node: ast.expr) -> Any:
    """The value of `_constant`; raises `ValueError` where infinity or no number is in it."""
    value = _constant(node)
    # Written out, these are names (`inf`, `nanj`); no other constant has any but of its types.
    named = {each.id for each in ast.walk(ast.parse(repr(value))) if isinstance(each, ast.Name)}
    if named - {"set", "frozenset"}:
        raise ValueError(f"no literal: {', '.join(sorted(named))}")
    return value


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
