"""Programs against tests: right ones pass, wrong ones fail, and cheating ones fail too."""

import asyncio

import pytest

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.checking import Checked, InputCase, assertion, check
from forethought.tools.sandbox.outcome import Kind

SUMS = (InputCase(stdin="2 3\n", stdout="5\n"), InputCase(stdin="10 -4\n", stdout="6\n"))
ADDS = tuple(assertion(f"assert add({a}, {b}) == {a + b}") for a, b in ((2, 3), (20, 22), (-1, 1)))
SECRET = 918_273_645
GUARDED = (assertion(f"assert secret() == {SECRET}"), assertion(f"assert {SECRET} == secret()"))
GUARDED_OUTPUT = (InputCase(stdin="", stdout=str(SECRET)),)


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


@pytest.mark.parametrize("line", ["assert f(1) == g(1)", "assert 1 < f(2) < 3", "x = 1", "assert"])
def test_an_assert_with_nothing_to_keep_back_is_refused(line):
    with pytest.raises(RecipeError):
        assertion(line)


CHEATS = {
    "ends before it is tested": "import os\nos._exit(0)",
    "leaves politely": "import sys\nsys.exit(0)",
    "is equal to everything": (
        "class Any:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "    def __repr__(self): return 'anything'\ndef secret(): return Any()"
    ),
    "claims to have passed": "print('OK: all tests passed')\nimport os\nos._exit(0)",
    "reads its own source": (
        "import sys, linecache\ntext = ''.join(map(str, linecache.cache.values()))\n"
        "import re\nfound = re.findall('[0-9]{9}', text)\n"
        "def secret(): return int(found[0]) if found else 0"
    ),
    "searches its memory": (
        "import gc, re\nfound = re.findall('[0-9]{9}', repr([o for o in gc.get_objects() "
        "if isinstance(o, (str, tuple, list, dict))])[:5_000_000])\n"
        "def secret(): return [int(f) for f in found][:1]"
    ),
    "looks at its callers": (
        "import sys\ndef secret():\n    f, seen = sys._getframe(), []\n"
        "    while f: seen += map(repr, f.f_code.co_consts); f = f.f_back\n"
        "    return [s for s in seen if s.isdigit()]"
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
        "import glob, re\ntext = ''.join(open(p, errors='replace').read() "
        "for p in glob.glob('/tmp/**', recursive=True) + ['/proc/self/environ'] "
        "if __import__('os').path.isfile(p))\nfound = re.findall('[0-9]{9}', text)\n"
        "def secret(): return int(found[0]) if found else 0"
    ),
    "never ends": "while True: pass",
    "does not compile": "def secret(: return 1",
    "floods": "print('1\\n' * 10_000_000)",
}


@pytest.mark.parametrize("cases", [GUARDED, GUARDED_OUTPUT], ids=["assert", "output"])
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheating_program_passes_nothing(checked, name, cases):
    assert checked(CHEATS[name], cases).share == 0.0


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


def test_broken_infrastructure_is_no_verdict():
    with pytest.raises(SandboxError):
        asyncio.run(check(Broken(), "print(5)", SUMS))
