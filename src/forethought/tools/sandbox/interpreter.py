"""The Python that programs run on, and the packages they find there.

Never the trainer's own environment: its packages hold graders, and perhaps data.
"""

import json
import os
import site
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forethought.core.errors import RecipeError
from forethought.tools.settings import PythonSettings

_ASK = (
    "import json, os, site, sys, sysconfig; base = getattr(sys, '_base_executable', "
    "sys.executable); print(json.dumps([list(sys.version_info[:2]), os.path.realpath(base), "
    "sys.base_prefix, "
    "[sysconfig.get_path('purelib'), sysconfig.get_path('platlib'), *site.getsitepackages()]]))"
)
_OLDEST = (3, 11)
_TREE = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An executable, where it is installed, and folders of packages for programs.

    >>> Interpreter(executable="/usr/bin/python3", prefix="/usr").packages
    ()
    """

    executable: str
    prefix: str
    packages: tuple[str, ...] = ()

    @property
    def names(self) -> Mapping[str, str]:
        """Paths of the host, and what is shown of them."""
        packages = dict.fromkeys(self.packages, "/packages")
        return packages | ({} if self.prefix == "/usr" else {self.prefix: "/python"})


def find_interpreter(settings: PythonSettings) -> Interpreter:
    """The interpreter that `tool.python` names, or this one without any package.

    Raises `RecipeError` if that is none, is too old, or is the trainer's own environment.
    """
    if not settings.python:
        return Interpreter(executable=os.path.realpath(sys.executable), prefix=sys.base_prefix)
    version, executable, prefix, folders = _ask(settings.python)
    if tuple(version) < _OLDEST:
        raise RecipeError(f"tool.python={settings.python!r} is {version}: name 3.11 or newer")
    found = dict.fromkeys(os.path.realpath(each) for each in folders if Path(each).is_dir())
    own = {os.path.realpath(path) for path in sys.path} & set(found)
    if own:
        raise RecipeError(
            f"tool.python={settings.python!r} is this trainer's own environment, whose packages "
            "no program may see: make another with `python -m venv FOLDER`"
        )
    return Interpreter(executable=executable, prefix=prefix, packages=tuple(found))


def hidden_folders(interpreter: Interpreter) -> tuple[str, ...]:
    """What no program may see, even where it lies inside of what programs do see."""
    packages = site.getsitepackages([sys.prefix, sys.base_prefix, interpreter.prefix])
    found = {*packages, sys.prefix, str(_TREE), str(Path.cwd()), str(Path.home())}
    real = {os.path.realpath(folder) for folder in found}
    return tuple(sorted(real - set(interpreter.packages)))


@cache
def _ask(python: str) -> tuple[list[int], str, str, list[str]]:
    """What an interpreter says of itself. Asked once: no server's restart waits for its answer."""
    try:
        said = subprocess.run(
            (python, "-I", "-c", _ASK), capture_output=True, text=True, timeout=60, check=True
        )
        version, executable, prefix, folders = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise RecipeError(
            f"tool.python={python!r} is no Python that can be started ({error}): give the path "
            "of an interpreter, such as FOLDER/bin/python after `python -m venv FOLDER`"
        ) from error
    return version, executable, prefix, folders
