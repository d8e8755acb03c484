"""The command `forethought`: one stage a command, and the whole pipeline as `quickstart`."""

import argparse
import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.console import Console

from forethought.app.context import Context
from forethought.app.recipe import Recipe, read_recipe
from forethought.app.show import Show
from forethought.app.stages.collect import collect
from forethought.app.stages.exam import exams_after_sft, sit_exam, sit_remotely
from forethought.app.stages.measure import measure
from forethought.app.stages.rl import rl
from forethought.app.stages.sft import sft
from forethought.core.errors import ForethoughtError
from forethought.journal.run import Run
from forethought.policy.remote import RemoteSettings
from forethought.watch.report import write_report

BAD_INPUT = 2
INTERRUPTED = 130


async def evaluate(context: Context) -> None:
    """Exams of every checkpoint that there is so far, or of the model behind an endpoint."""
    if isinstance(context.recipe.model, RemoteSettings):
        await sit_remotely(context, context.recipe.model)
        return
    exams = exams_after_sft(context)
    if context.run.stage("rl").finished:
        exams.append(("after", "rl"))
    for name, stage in exams:
        await sit_exam(context, name, stage)


async def quickstart(context: Context) -> None:
    """The stages in a row, and a report."""
    await collect(context)
    await sft(context)
    for name, stage in exams_after_sft(context):
        await sit_exam(context, name, stage)
    await measure(context)
    await rl(context)
    await sit_exam(context, "after", "rl")
    _write_report(context.run, context.show)


def _write_report(run: Run, show: Show) -> None:
    """The report, and what can be done next."""
    following = (
        ("Look again later", f"forethought report {run.path}"),
        ("Change one thing", "forethought recipe > my.toml"),
        ("and run it", "forethought quickstart --recipe my.toml"),
    )
    path = write_report(run, run.path / "report.html", next_commands=following)
    show.stage("Done", "The report tells what happened, every number with its interval.")
    for what, command in (("Open the report", str(path)), *following):
        show.say(f"{what:<18} {command}")


STAGES: dict[str, tuple[Callable[[Context], Awaitable[None]], str]] = {
    "collect": (collect, "sft"),
    "sft": (sft, "measure"),
    "measure": (measure, "rl"),
    "rl": (rl, "eval"),
    "eval": (evaluate, "report"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Bad input is one message and code 2."""
    console = Console(stderr=False)
    options, overrides = _parser().parse_known_args(arguments)
    try:
        options.run_command(options, overrides, console)
    except ForethoughtError as error:
        Show(Console(stderr=True)).complain(f"forethought: {error}")
        return BAD_INPUT
    except KeyboardInterrupt:
        console.print("\nStopped. What is finished is kept; the same command goes on from there.")
        return INTERRUPTED
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
    for name, (stage, _) in STAGES.items():
        command = commands.add_parser(
            name, help=(stage.__doc__ or "").splitlines()[0], allow_abbrev=False
        )
        command.add_argument("recipe", type=Path, help="a TOML file")
        command.add_argument("--run", type=Path, help="the run's folder (default: runs/NAME)")
        command.set_defaults(run_command=_stage, name=name)
    report = commands.add_parser("report", help="write a run's report again", allow_abbrev=False)
    report.add_argument("run", type=Path, help="the run's folder")
    report.set_defaults(run_command=_report)
    recipe = commands.add_parser("recipe", help="print the embedded recipe", allow_abbrev=False)
    recipe.set_defaults(run_command=_recipe)
    return parser


def _quickstart(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    if options.recipe is not None:
        recipe, name = read_recipe(options.recipe, overrides), options.recipe.stem
    else:
        with as_file(_embedded()) as path:
            recipe, name = read_recipe(path, overrides), "quickstart"
    _run(quickstart, recipe, options.run or Path("runs") / name, console)


def _stage(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    recipe = read_recipe(options.recipe, overrides)
    folder = options.run or Path("runs") / options.recipe.stem
    work, following = STAGES[options.name]
    _run(work, recipe, folder, console)
    run = ["--run", str(options.run)] if options.run else []
    same = [str(options.recipe), *run, *overrides]
    words = [following, *([str(folder)] if following == "report" else same)]
    Show(console).tell(f"\nNext: forethought {shlex.join(words)}")


def _report(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    with Run.read(options.run) as run:
        path = write_report(run, options.run / "report.html")
    Show(console).tell(f"Wrote {path}")


def _recipe(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    sys.stdout.write(_embedded().read_text(encoding="utf-8"))


def _embedded() -> Traversable:
    return files("forethought.app") / "quickstart.toml"


def _run(
    work: Callable[[Context], Awaitable[None]], recipe: Recipe, folder: Path, console: Console
) -> None:
    with Run.create_or_open(folder, recipe.model_dump(mode="json")) as run:
        Show(console).tell(f"run folder: {folder}")
        asyncio.run(_awaited(work, Context(recipe, run, Show(console))))


async def _awaited(work: Callable[[Context], Awaitable[None]], context: Context) -> None:
    await work(context)
