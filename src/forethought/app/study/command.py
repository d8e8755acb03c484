"""The command `study`: variants of one recipe over several seeds, one table and one figure."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from forethought.app.linter import warnings
from forethought.app.process import loading
from forethought.app.program import spoken
from forethought.app.show import Show
from forethought.app.study.settings import Study, read_study
from forethought.core.errors import RecipeError
from forethought.journal.files import written_beside

SEEDS = 3
"""Seeds where none are asked for: the fewest whose interval says something."""


def add_study(commands: Any) -> None:
    """Register the command with the parser's `commands`."""
    study = commands.add_parser(
        "study", help="compare variants of a recipe over several seeds", allow_abbrev=False
    )
    study.add_argument("study", type=Path, help="a folder that holds study.toml")
    study.add_argument("--seeds", type=int, default=SEEDS, help="how many (default: %(default)s)")
    study.add_argument("--folder", type=Path, help="of its runs (default: runs/study/NAME)")
    study.set_defaults(run_command=_study)


def _study(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    seeds: int = options.seeds
    if seeds < 1:
        raise RecipeError(f"--seeds {seeds}: a study needs at least one; 3 or more give intervals")
    study, show = read_study(options.study, overrides), Show(console)
    folder: Path = options.folder or Path("runs") / "study" / study.name
    show.tell(f"{study.settings.title}\nstudy folder: {folder}")
    show.say(f"{len(study.recipes)} variants and {seeds} seeds: {', '.join(study.recipes)}")
    for name, recipe in study.recipes.items():
        for sentence in warnings(recipe):
            show.tell(f"warning: variant {name}: {sentence}", style="yellow")
    # Only here, so that bad input and --help are answered before torch is loaded.
    with loading():
        from forethought.app.study.running import run_seed  # noqa: PLC0415

    for seed in range(seeds):
        run_seed(study, folder, seed, show)
        # After each seed, so that a study that takes days shows what there is.
        _write(study, folder, seed + 1)
    _conclude(options, overrides, folder, show)


def _write(study: Study, folder: Path, seeds: int) -> None:
    """Write what the first `seeds` seeds came to."""
    from forethought.app.study.figure import figure  # noqa: PLC0415
    from forethought.app.study.outcomes import read_outcome  # noqa: PLC0415
    from forethought.app.study.running import RESULTS, variant_run  # noqa: PLC0415
    from forethought.app.study.table import as_json, table  # noqa: PLC0415

    outcomes = {
        variant: [read_outcome(variant_run(folder, variant, seed), seed) for seed in range(seeds)]
        for variant in study.recipes
    }
    settings = study.settings
    texts = (
        table(study, outcomes),
        json.dumps(as_json(study, outcomes), indent=2) + "\n",
        figure(outcomes, settings.smooth, settings.reach),
    )
    for name, text in zip(RESULTS, texts, strict=True):
        with written_beside(folder / name) as file:
            file.write(text)


def _conclude(options: argparse.Namespace, overrides: list[str], folder: Path, show: Show) -> None:
    """Say what was written, and what can be run next."""
    show.stage(
        "Done", "Differences are paired by problem and seed; the table says how sure they are."
    )
    for what, name in (("Table", "table.md"), ("The same as JSON", "table.json")):
        show.say(f"{what:<18} {folder / name}")
    show.say(f"{'Figure':<18} {folder / 'figure.svg'}")
    show.say(f"{'Reports of runs':<18} {folder / 'variants' / '*' / 'seed*' / 'report.html'}")
    more = ["--seeds", str(max(5, 2 * options.seeds))]
    where = ["--folder", str(options.folder)] if options.folder else []
    again = spoken("study", str(options.study), *more, *where, *overrides)
    show.say(f"{'More seeds':<18} {again}")
