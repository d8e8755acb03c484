"""The stages by name, and the whole pipeline in a row.

Imports everything that computes; the command line reads its arguments before it does so.
"""

from collections.abc import Awaitable, Callable

from forethought.app.context import Context
from forethought.app.show import Show
from forethought.app.stages.collect import collect
from forethought.app.stages.exam import exams_after_sft, sit_exam, sit_remotely
from forethought.app.stages.measure import measure
from forethought.app.stages.rl import rl
from forethought.app.stages.sft import sft
from forethought.journal.run import Run
from forethought.policy.remote import RemoteSettings
from forethought.watch.report import write_report


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
    report(context.run, context.show)


def report(run: Run, show: Show) -> None:
    """Write the report, and say what can be done next."""
    following = (
        ("Look again later", f"forethought report {run.path}"),
        ("Change one thing", "forethought recipe > my.toml"),
        ("and run it", "forethought quickstart --recipe my.toml"),
    )
    path = write_report(run, run.path / "report.html", next_commands=following)
    show.stage("Done", "The report tells what happened, every number with its interval.")
    for what, command in (("Open the report", str(path)), *following):
        show.say(f"{what:<18} {command}")


WORK: dict[str, Callable[[Context], Awaitable[None]]] = {
    "quickstart": quickstart,
    "collect": collect,
    "sft": sft,
    "measure": measure,
    "rl": rl,
    "eval": evaluate,
}
"""What each command that takes a recipe does."""
