"""The words that start this program again from where the person stands.

What is printed as a next command can then be run as it is, inside a virtual environment or not.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "forethought"


def spoken(*words: str) -> str:
    """The command `forethought WORDS`, as it can be typed in the current directory."""
    return shlex.join([*program(Path(sys.argv[0])), *words])


def program(started: Path) -> list[str]:
    """How the program that was started by the path `started` is started again.

    Its name alone where the search path leads to it; otherwise the path by which it was started,
    seen from here where that is shorter. What was started as a module, or by other Python code, is
    the interpreter with `-m forethought`.
    """
    if started.name != _NAME or not started.is_file():
        return [_nearest(Path(sys.executable)), "-m", _NAME]
    found = shutil.which(_NAME)
    if found is not None and Path(found).resolve() == started.resolve():
        return [_NAME]
    return [_nearest(started)]


def _nearest(path: Path) -> str:
    """The shorter of a program's absolute and relative paths; links in it are left alone."""
    relative = os.path.relpath(path)
    if os.sep not in relative:
        relative = f"{os.curdir}{os.sep}{relative}"  # a bare name would be searched for
    return min(str(path.absolute()), relative, key=len)
