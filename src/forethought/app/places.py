"""Where what leaves a run may be written."""

import os
from pathlib import Path
from typing import Literal

from forethought.core.errors import RecipeError
from forethought.journal.run import Run


def new_place(run: Run, asked: Path, kind: Literal["file", "folder"]) -> Path:
    """Where the file or folder `asked` for is, without links and `..`.

    Raises `RecipeError` where it is there already, lies in the run or lies below a file.
    """
    place = Path(os.path.realpath(asked))
    if os.path.lexists(asked) or os.path.lexists(place):
        raise RecipeError(f"{asked} is there already: name a new {kind}")
    if run.path.resolve() in place.parents:
        raise RecipeError(f"{asked} lies in the run {run.path}: name a {kind} outside of it")
    above = next(one for one in place.parents if os.path.lexists(one))
    if not above.is_dir():
        raise RecipeError(f"{asked} cannot be made, as {above} is no folder: name another place")
    return place
