"""Programs against tests: right ones pass, wrong ones fail, and cheating ones fail too."""

import asyncio
import hashlib
from dataclasses import dataclass

import pytest

from forethought.core.errors import SandboxError
from forethought.tasks.asserts import assertion
from forethought.tasks.cases import MOST_KEPT, MOST_SHOWN, InputCase
from forethought.tools.checking import AT_ONCE, Checked, check
from forethought.tools.sandbox.outcome import Kind, Outcome

SUMS = (InputCase(stdin="2 3\n", stdout="5\n"), InputCase(stdin="10 -4\n", stdout="6\n"))
ADDS = tuple(assertion(f"assert add({a}, {b}) == {a + b}") for a, b in ((2, 3), (20, 22), (-1, 1)))
SECRET = 918_273_645
GUARDED = (assertion(f"assert secret() == {SECRET}"), assertion(f"assert {SECRET} == secret()"))
GUARDED_OUTPUT = (InputCase(stdin="", stdout=str(SECRET)),)
DIGEST = hashlib.sha256(str(SECRET).encode()).hexdigest()
SPOT = (
    "import hashlib, re\n"
    "def spot(text):\n"
    "    for found in re.findall('[0-9]{9}', text):\n"
    f"        if hashlib.sha256(found.encode()).hexdigest() == '{DIGEST}': return int(found)\n"
)
"""A search that knows the secret when it sees it: what it can reach, it finds."""


@pytest.fixture
def checked(sandbox):
    def run(source, cases):
        return sandbox.runner.run(check(sandbox.tool.opened.backend, source, cases))

    return run


def test_a_right_program_passes_by_what_it_reads_and_writes(checked):
    assert checked("a, b = map(int, input().split())\nprint(a + b)", SUMS).right


def test_a_wrong_program_fails_where_it_is_wrong(checked):
    found = checked("a, b = map(int, input().split())\nprint(abs(a) + abs(b))", SUMS)
    assert found == Checked(kinds=(Kind.OK, Kind.OK), passed=(True, False))
    assert found.share == 0.5


def test_a_right_function_passes_its_asserts(checked):
    assert checked(
        "print('noise')\ndef add(a, b):\n    print('more')\n    return a + b", ADDS
    ).right


@pytest.mark.parametrize(
    "line",
    [
        "assert add(1, 1) == 2",
        "assert 2 == add(1, 1)",
        "assert add(1, 1) != 3",
        "assert add(1, 1) < 3",
        "assert abs(add(0.1, 0.2) - 0.3) < 1e-9",
        "assert add([1], [2]) == [1, 2]",
        "assert add('a', 'b') in ('ab', 'ba')",
        "assert add(1, 1)",
        "assert not add(0, 0)",
        "assert add({'a': 1}['a'], 0) is not None, 'with a message'",
    ],
)
def test_asserts_of_many_forms_are_understood(checked, line):
    case = assertion(line)
    assert checked("def add(a, b): return a + b", [case]).right
    assert not checked("def add(a, b): raise ValueError", [case]).right


CHEATS = {
    "ends before it is tested": "import os\nos._exit(0)",
    "leaves politely": "import sys\nsys.exit(0)",
    "is equal to everything": (
        "class Any:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "    def __repr__(self): return 'anything'\ndef secret(): return Any()"
    ),
    "claims to have passed": "print('OK: all tests passed')\nimport os\nos._exit(0)",
    "reads its own source": (
        "import linecache\n"
        "def secret(): return spot(''.join(map(str, linecache.cache.values())))\nprint(secret())"
    ),
    "searches its memory": (
        "import gc\n"
        "def secret(): return spot(repr([o for o in gc.get_objects() "
        "if isinstance(o, (str, tuple, list, dict))])[:5_000_000])\nprint(secret())"
    ),
    "looks at its callers": (
        "import sys\ndef secret():\n    f, seen = sys._getframe(), []\n"
        "    while f: seen += [f.f_code.co_consts, {**f.f_locals}]; f = f.f_back\n"
        "    return spot(repr(seen))\nprint(secret())"
    ),
    "replaces print": (
        "import builtins\nold = builtins.print\n"
        "builtins.print = lambda *a, **k: old('True')\ndef secret(): return 1"
    ),
    "replaces repr": "import builtins\nbuiltins.repr = lambda x: 'True'\ndef secret(): return 1",
    "answers with code": (
        "class Code:\n    def __repr__(self): return '__import__(\"os\").getpid()'\n"
        "def secret(): return Code()"
    ),
    "answers with a bomb": (
        "class Bomb:\n    def __repr__(self): return '[' * 90_000\ndef secret(): return Bomb()"
    ),
    "writes to every descriptor": (
        "import os\nfor fd in range(256):\n    try: os.write(fd, b'True\\n')\n"
        "    except OSError: pass\nos._exit(0)"
    ),
    "looks for files": (
        "import glob, os\npaths = glob.glob('/tmp/**', recursive=True)\n"
        "paths += ['/proc/self/environ', '/proc/self/cmdline']\n"
        "def secret(): return spot(''.join(open(p, errors='replace').read() for p in paths "
        "if os.path.isfile(p)))\nprint(secret())"
    ),
    "never ends": "while True: pass",
    "does not compile": "def secret(: return 1",
    "floods": "print('1\\n' * 10_000_000)",
}


@pytest.mark.parametrize("cases", [GUARDED, GUARDED_OUTPUT], ids=["assert", "output"])
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheating_program_passes_nothing(checked, name, cases):
    assert checked(SPOT + CHEATS[name], cases).share == 0.0


THERE = {
    "reads its own source": "import linecache\nlinecache.cache['a'] = '918273645'\n",
    "searches its memory": "kept = ['918273645']\n",
    "looks at its callers": "kept = 918273645\n",
    "looks for files": "open('/tmp/kept', 'w').write('918273645')\n",
}
"""The cheats that search, each with something to be found."""


@pytest.mark.parametrize("cases", [GUARDED, GUARDED_OUTPUT], ids=["assert", "output"])
@pytest.mark.parametrize("name", THERE)
def test_a_cheat_that_searches_would_find_what_is_there(checked, name, cases):
    assert checked(THERE[name] + SPOT + CHEATS[name], cases).right


TOLD = {
    "a tolerance": (
        "assert abs(ratio(1) - 0.918273645) < 1e-9",
        "def abs(value): return 0\nclass Any:\n    def __sub__(self, other): return 0\n"
        "def ratio(n): return Any()",
    ),
    "a frame": (
        "assert secret() == 918273645",
        "import sys\ndef secret():\n    frame, seen = sys._getframe(), set()\n"
        "    while frame:\n        seen |= set(map(str, frame.f_code.co_consts))\n"
        "        seen |= set(map(str, frame.f_globals.values()))\n        frame = frame.f_back\n"
        "    return next((int(s) for s in seen if '918273645' in s and s.isdigit()), 0)",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_program_is_not_told_what_is_expected(checked, name):
    line, cheat = TOLD[name]
    assert not checked(cheat, [assertion(line)]).right


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.stdout.write(str(sum(map(int, input().split()))))",
        "[print(sum(map(int, input().split())))]",
        "a, b = map(int, input().split())\nprint(a + b)\nexit()",
        "def main():\n    print(sum(map(int, input().split())))\n    return 0\nmain()",
        "if __name__ == '__main__':\n    print(sum(map(int, input().split())))",
    ],
)
def test_a_program_writes_what_it_would_write_as_a_script(checked, program):
    assert checked(program, SUMS).right


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("from collections import Counter as f", "assert f('aab') == {'a': 2, 'b': 1}"),
        (
            "from collections import namedtuple\nf = namedtuple('Point', 'x y')",
            "assert f(1, 2) == (1, 2)",
        ),
        ("import enum\nclass f(enum.IntEnum):\n    A = 1", "assert f(1) == 1"),
        ("class f(str): __repr__ = object.__repr__", "assert f('a') == 'a'"),
        ("def f(): return [frozenset({1}), True, None, (2.5,)]", "assert len(f()) == 4"),
        ("def f(): return frozenset({1})", "assert f() == {1}"),
        ("from __future__ import annotations\ndef f(): return 1", "assert f() == 1"),
        ("print = repr = list = None\ndef f(): return [1]", "assert f() == [1]"),
        ("def f(): return 1\nif __name__ == '__main__':\n    f(input())", "assert f() == 1"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\n"
            "def f(): return P(1).x",
            "assert f() == 1",
        ),
    ],
)
def test_a_right_program_is_right_however_it_is_written(checked, program, line):
    assert checked(program, [assertion(line)]).right


def test_the_longest_results_that_a_test_may_expect_are_kept_whole(checked):
    output = InputCase(stdin="", stdout="1" * (MOST_KEPT - 1))
    assert output.least_bytes == MOST_KEPT
    assert checked(f"print('1' * {MOST_KEPT - 1})", [output]).right
    value = assertion(f"assert f() == {'1' * (MOST_SHOWN - 2)!r}")
    assert checked(f"def f(): return '1' * {MOST_SHOWN - 2}", [value]).right


def test_what_is_not_kept_whole_is_told_from_another_result(checked):
    output = InputCase(stdin="", stdout="1" * MOST_KEPT)
    for program, kind in ((f"print('1' * {MOST_KEPT})", Kind.OUTPUT), ("print(2)", Kind.OK)):
        assert checked(program, [output]) == Checked(kinds=(kind,), passed=(False,))


def test_a_setup_is_run_after_the_program_and_before_the_call(checked):
    case = assertion("assert size(tree) == 2", setup="tree = Node(Node(None))")
    program = (
        "class Node:\n    def __init__(self, below): self.below = below\n"
        "def size(tree): return 1 + (size(tree.below) if tree.below else 0)"
    )
    assert checked(program, [case]).right
    assert not checked("def size(tree): return 2", [case]).right


@pytest.mark.parametrize("program", ["print('\ud800')", "print(5)\0", "#" * 300_000])
def test_a_program_that_no_tool_takes_passes_nothing(checked, program):
    assert checked(program, SUMS) == Checked(kinds=(Kind.REJECTED,) * 2, passed=(False,) * 2)


def test_one_test_leaves_nothing_for_the_next(checked):
    program = (
        "import os\nseen = os.path.exists('/tmp/left')\nopen('/tmp/left', 'w').close()\n"
        "def seen_before(): return seen"
    )
    assert checked(program, [assertion("assert not seen_before()")] * 3).right


class Broken:
    """Infrastructure that fails."""

    async def run(self, code, stdin=""):
        raise SandboxError("no server")


@dataclass
class HalfBroken:
    """Infrastructure that fails at once for one program, and runs another for a while."""

    ended: int = 0

    async def run(self, code, stdin=""):
        if stdin == SUMS[0].stdin:
            raise SandboxError("no server")
        for _ in range(9):
            await asyncio.sleep(0)
        self.ended += 1
        return Outcome(kind=Kind.OK)


def test_nothing_runs_on_when_a_case_has_failed():
    runner = HalfBroken()
    with pytest.raises(SandboxError, match="no server"):
        asyncio.run(check(runner, "print(5)", SUMS))
    assert runner.ended == 1


@dataclass
class Crowd:
    """Runs programs that take a while each, and counts how many do at once."""

    open: int = 0
    most: int = 0

    async def run(self, code, stdin=""):
        self.open += 1
        self.most = max(self.most, self.open)
        for _ in range(9):
            await asyncio.sleep(0)
        self.open -= 1
        return Outcome(kind=Kind.OK, out=stdin.encode())


def test_however_many_cases_there_are_a_few_are_run_at_a_time_and_judged_in_their_order():
    cases = [InputCase(stdin=str(n), stdout=str(n % 40)) for n in range(5 * AT_ONCE + 3)]
    crowd = Crowd()
    found = asyncio.run(check(crowd, "print(input())", cases))
    assert found.passed == (True,) * 40 + (False,) * 3
    assert crowd.most == AT_ONCE


def test_broken_infrastructure_is_no_verdict():
    with pytest.raises(SandboxError):
        asyncio.run(check(Broken(), "print(5)", SUMS))
