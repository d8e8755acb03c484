"""The runs of a study: what comes before RL once a seed, then a copy of it for each variant.

Every run is an ordinary run folder, so that whatever was interrupted goes on where it was, and
what has finished is only looked at.
"""

import os
import re
import shutil
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from forethought.app.context import Context
from forethought.app.engine import chosen_device
from forethought.app.pipeline import practise, prepare
from forethought.app.process import run_until_interrupted
from forethought.app.recipe import Recipe
from forethought.app.show import Show
from forethought.app.study.settings import Study
from forethought.core.errors import RecipeError
from forethought.journal.files import explained, remove_left_over
from forethought.journal.lock import writer_lock
from forethought.journal.run import Run
from forethought.journal.status import reported
from forethought.learning.eight_bit import refuse_unusable
from forethought.watch.report import write_report

REPORT = "report.html"
LOCK = "study.lock"
"""In a study's folder: who works on it."""
RESULTS = ("table.md", "table.json", "figure.svg")
"""In a study's folder: what its runs came to."""
_BEFORE, _VARIANTS = "before_rl", "variants"
_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")


def run_seed(study: Study, folder: Path, seed: int, show: Show) -> None:
    """Every run of one seed, as far as it is missing.

    Raises `RecipeError` that names the run, also where it was begun with another recipe, where
    another process works on the study, and where its results would replace another's files.
    """
    with explained(folder):
        _refuse_foreign(folder)
        _refuse_hopeless(study, folder, seed)
    with _held(folder):
        _run_seed(study, folder, seed, show)


def _run_seed(study: Study, folder: Path, seed: int, show: Show) -> None:
    before = before_rl(folder, seed)
    show.tell(f"\nSeed {seed}: what comes before RL, for all variants ({before})", style="bold")
    with _named(f"seed {seed}, before RL"):
        _work(study.recipe(next(iter(study.recipes)), seed), before, show, prepare)
    for number, variant in enumerate(study.recipes, start=1):
        path = variant_run(folder, variant, seed)
        count = f"variant {number} of {len(study.recipes)}"
        show.tell(f"\nSeed {seed}, {count}: {variant} ({path})", style="bold")
        with _named(f"variant {variant}, seed {seed}"):
            if not path.exists():
                with explained(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    copy_whole(before, path)
            _work(study.recipe(variant, seed), path, show, _practise)


def before_rl(folder: Path, seed: int) -> Path:
    """The run that ends where RL begins."""
    return folder / _BEFORE / f"seed{seed}"


def variant_run(folder: Path, variant: str, seed: int) -> Path:
    """The run of one variant."""
    return folder / _VARIANTS / variant / f"seed{seed}"


def copy_whole(run: Path, copy: Path) -> None:
    """Copy a run beside and rename it: a copy that was interrupted is not taken for one.

    Raises `OSError` when the disk refuses; nothing is left then.
    """
    beside = copy.with_name(f".{copy.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        shutil.copytree(run, beside)
        beside.rename(copy)
    except shutil.Error as error:
        # It holds every file's error as a text; of a full disk they are all the same.
        source, _, text = error.args[0][0]
        if (number := _ERROR_NUMBER.search(text)) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), source) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _refuse_foreign(folder: Path) -> None:
    """Raise `RecipeError` where results would replace files that are those of no study."""
    if any((folder / part).exists() for part in (_BEFORE, _VARIANTS)):
        return
    if there := [name for name in RESULTS if os.path.lexists(folder / name)]:
        raise RecipeError(
            f"{folder} holds {', '.join(there)}, but no runs of a study: name an empty or new "
            "folder with --folder"
        )


@contextmanager
def _held(folder: Path) -> Generator[None]:
    """Work on a study's folder, made where there is none, as the only process."""
    with ExitStack() as resources:
        with _named("study folder"):
            with explained(folder):
                folder.mkdir(parents=True, exist_ok=True)
            resources.enter_context(writer_lock(folder, LOCK))
            with explained(folder):
                remove_left_over(folder)
        yield


def _refuse_hopeless(study: Study, folder: Path, seed: int) -> None:
    """Raise `RecipeError` for a variant still to begin that would stop where its RL begins."""
    for variant, recipe in study.recipes.items():
        if not variant_run(folder, variant, seed).exists():
            with _named(f"variant {variant}"):
                device = chosen_device(recipe.compute)
                refuse_unusable(recipe.rl.optimizer, device, "rl.optimizer")


async def _practise(context: Context) -> None:
    await practise(context)
    report = context.run.path / REPORT
    if not report.exists():
        write_report(context.run, report)


def _work(
    recipe: Recipe,
    path: Path,
    show: Show,
    work: Callable[[Context], Coroutine[Any, Any, None]],
) -> None:
    with Run.create_or_open(path, recipe.model_dump(mode="json")) as run, reported(run, "study"):
        run_until_interrupted(work(Context(recipe, run, show)))


@contextmanager
def _named(what: str) -> Generator[None]:
    """Say which run an error is of, and that a study's folder is named with `--folder`."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{what}: {str(error).replace('--run', '--folder')}") from error
