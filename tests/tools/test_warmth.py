"""What packages need around a fork: parts loaded once, and random numbers of each program's own.

The packages are stand-ins with the names of real ones, in an environment made for programs.
"""

import asyncio
import subprocess
import sys

import pytest

from forethought.tools.sandbox.pool import Pool
from forethought.tools.settings import PythonSettings

RANDOM = """
import os
state, seeded = os.urandom(8).hex(), 0
def seed():
    global state, seeded
    state, seeded = os.urandom(8).hex(), seeded + 1
"""
SYMPY = """
asked = []
class Symbol:
    def __init__(self, name): ...
    def __pow__(self, other): return self
    __mul__ = __sub__ = __pow__
def sin(x): return x
def solve(*given): asked.append("solve")
def integrate(*given): asked.append("integrate")
"""
FILES = {
    "numpy/__init__.py": "",
    "numpy/random/__init__.py": RANDOM,
    "numpy/linalg.py": "",
    "numpy/fft.py": "",
    "sympy.py": SYMPY,
}
STATE = "from numpy.random import seeded, state\nprint(seeded, state)"
LOADED = (
    "import sys\nprint([name for name in ('numpy.random', 'numpy.linalg', 'numpy.fft', 'sympy') "
    "if name in sys.modules])"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A Python with packages of these names."""
    place = tmp_path_factory.mktemp("programs") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (folder,) = place.glob("lib/python3*/site-packages")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(place / "bin" / "python")


def written(environment, *programs, preload, sessions=False):
    """What programs print, forked one after another from the same zygote."""
    settings = PythonSettings(tier="namespaces", servers=1, python=environment, preload=preload)

    async def run():
        async with Pool(settings) as pool:
            outcomes = [
                await pool.run(code, session=pool.open_session() if sessions else None)
                for code in programs
            ]
            return [outcome.out.decode().strip() for outcome in outcomes]

    return asyncio.run(run())


@pytest.mark.parametrize("sessions", [False, True])
def test_each_program_begins_with_random_numbers_of_its_own(environment, sessions):
    found = written(environment, *(STATE,) * 4, preload=("numpy",), sessions=sessions)
    seeded, states = zip(*(line.split() for line in found), strict=True)
    assert seeded == ("1",) * 4
    assert len({*states}) == 4


def test_a_session_keeps_its_random_numbers_from_program_to_program(environment):
    settings = PythonSettings(
        tier="namespaces", servers=1, python=environment, preload=("numpy",), state="session"
    )

    async def run():
        async with Pool(settings) as pool:
            session = pool.open_session()
            return [(await pool.run(STATE, session=session)).out for _ in range(2)]

    first, second = asyncio.run(run())
    assert first.startswith(b"1 ")
    assert first == second


def test_parts_that_a_package_loads_late_are_there_before_a_program_begins(environment):
    (found,) = written(environment, LOADED, preload=("numpy",))
    assert found == "['numpy.random', 'numpy.linalg', 'numpy.fft']"


def test_what_a_package_works_out_at_first_use_is_worked_out_before_a_program_begins(environment):
    (found,) = written(environment, "import sympy\nprint(sympy.asked)", preload=("sympy",))
    assert found == "['solve', 'integrate']"


def test_a_package_that_is_not_preloaded_is_left_to_the_program(environment):
    found = written(environment, LOADED, STATE, preload=())
    assert found[0] == "[]"
    assert found[1].startswith("0 ")
