"""The command `forethought`: one stage a command, and the whole pipeline as `quickstart`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.console import Console

from forethought.app.doctor import add_doctor
from forethought.app.export_attempts import export_attempts
from forethought.app.linter import warnings
from forethought.app.process import leave, loading, run_until_interrupted
from forethought.app.program import spoken
from forethought.app.recipe import Recipe, read_recipe
from forethought.app.show import Show
from forethought.app.stopping import stopped
from forethought.app.study.command import add_study
from forethought.core.errors import ForethoughtError, RecipeError
from forethought.journal.run import Run
from forethought.journal.status import reported

BAD_INPUT = 2

STAGES = {
    "collect": ("record trajectories with the real tool, or take them from a file", "sft"),
    "sft": ("imitate them", "measure"),
    "measure": ("find out how hard problems are for the model", "rl"),
    "rl": ("reinforcement learning with the tool in the loop", "eval"),
    "eval": ("held-out exams of what there is so far", "report"),
}
"""Each stage's command: what it does, and the command that follows."""


def command() -> int:
    """What starts as a process of its own; returns the exit code."""
    code = main()
    leave()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Bad input is one message and code 2."""
    console = Console(stderr=False)
    words = sys.argv[1:] if arguments is None else [*arguments]
    options, overrides = _parser().parse_known_args(words)
    options.words = words
    try:
        options.run_command(options, overrides, console)
    except ForethoughtError as error:
        Show(Console(stderr=True)).complain(f"forethought: {error}")
        return BAD_INPUT
    except KeyboardInterrupt:
        return stopped()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forethought",
        description="Trains language models to think before they reach for a tool.",
        epilog="Any recipe key can be overridden, for example --rl.steps 20.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    whole = commands.add_parser(
        "quickstart", help="the whole pipeline on this machine", allow_abbrev=False
    )
    whole.add_argument("--recipe", type=Path, help="instead of the embedded recipe")
    whole.add_argument("--run", type=Path, help="the run's folder (default: runs/NAME)")
    whole.set_defaults(run_command=_quickstart)
    for name, (what, _) in STAGES.items():
        command = commands.add_parser(name, help=what, allow_abbrev=False)
        command.add_argument("recipe", type=Path, help="a TOML file")
        command.add_argument("--run", type=Path, help="the run's folder (default: runs/NAME)")
        command.set_defaults(run_command=_stage, name=name)
    report = commands.add_parser("report", help="write a run's report again", allow_abbrev=False)
    report.add_argument("run", type=Path, help="the run's folder")
    report.set_defaults(run_command=_report)
    export = commands.add_parser(
        "export",
        help="write a run's model, or its attempts, for other programs",
        allow_abbrev=False,
    )
    export.add_argument("run", type=Path, help="the run's folder")
    export.add_argument(
        "place",
        type=Path,
        help="a new folder for the model, adapters merged, or a new file that ends in .jsonl for "
        "the attempts",
    )
    export.add_argument("--stage", help="the one stage whose attempts are written (default: all)")
    export.set_defaults(run_command=_export)
    recipe = commands.add_parser("recipe", help="print the embedded recipe", allow_abbrev=False)
    recipe.set_defaults(run_command=_recipe)
    add_study(commands)
    add_doctor(commands)
    return parser


def _quickstart(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    if options.recipe is not None:
        recipe, name = read_recipe(options.recipe, overrides), options.recipe.stem
    else:
        with as_file(_embedded()) as path:
            recipe, name = read_recipe(path, overrides), "quickstart"
    _run("quickstart", recipe, options.run or Path("runs") / name, options.words, console)


def _stage(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    recipe = read_recipe(options.recipe, overrides)
    folder = options.run or Path("runs") / options.recipe.stem
    _, following = STAGES[options.name]
    _run(options.name, recipe, folder, options.words, console)
    run = ["--run", str(options.run)] if options.run else []
    same = [str(options.recipe), *run, *overrides]
    words = [following, *([str(folder)] if following == "report" else same)]
    Show(console).tell(f"\nNext: {spoken(*words)}")


def _report(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    _refuse_words("report", overrides)
    # Only here: it draws with matplotlib, which --help and bad input need not wait for.
    from forethought.app.report import report  # noqa: PLC0415

    with Run.read(options.run) as run:
        report(run, Show(console))


def _export(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    _refuse_words("export", overrides)
    if options.place.name.endswith(".jsonl"):
        with Run.read(options.run) as run:
            export_attempts(run, options.place, options.stage, Show(console))
        return
    if options.stage is not None:
        raise RecipeError(
            f"--stage {options.stage}: a stage's attempts are written to a file, and "
            f"{options.place} does not end in .jsonl; name one that does, or leave --stage out"
        )
    # Only here: it loads torch, which --help and bad input need not wait for.
    from forethought.app.export import export  # noqa: PLC0415

    with Run.read(options.run) as run:
        export(run, options.place, Show(console))


def _recipe(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    _refuse_words("recipe", overrides)
    sys.stdout.write(_embedded().read_text(encoding="utf-8"))


def _refuse_words(command: str, words: Sequence[str]) -> None:
    """Raise `RecipeError` for words after a command that reads no recipe."""
    if words:
        raise RecipeError(
            f"{shlex.join(words)}: {command} reads no recipe, so no key can be overridden; leave "
            "this out"
        )


def _embedded() -> Traversable:
    return files("forethought.app") / "quickstart.toml"


def _run(name: str, recipe: Recipe, folder: Path, words: Sequence[str], console: Console) -> None:
    with Run.create_or_open(folder, recipe.model_dump(mode="json")) as run:
        Show(console).tell(f"run folder: {folder}")
        for sentence in warnings(recipe):
            Show(console).tell(f"warning: {sentence}", style="yellow")
        # Only here, so that bad input and --help are answered before torch is loaded.
        with loading():
            from forethought.app.context import Context  # noqa: PLC0415
            from forethought.app.pipeline import WORK  # noqa: PLC0415

        with reported(run, name, words):
            run_until_interrupted(WORK[name](Context(recipe, run, Show(console))))
