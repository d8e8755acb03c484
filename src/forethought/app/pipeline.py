"""The stages by name, and the whole pipeline in a row.

Imports everything that computes; the command line reads its arguments before it does so.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from forethought.app.context import RL, Context
from forethought.app.refusals import refuse_hopeless
from forethought.app.report import report
from forethought.app.stages.collect import collect
from forethought.app.stages.exam import exams_after_sft, sit_exam, sit_remotely
from forethought.app.stages.measure import measure
from forethought.app.stages.rl import rl
from forethought.app.stages.sft import sft
from forethought.policy.remote import RemoteSettings


async def evaluate(context: Context) -> None:
    """Exams of every checkpoint that there is so far, or of the model behind an endpoint."""
    if isinstance(context.recipe.model, RemoteSettings):
        await sit_remotely(context, context.recipe.model)
        return
    exams = exams_after_sft(context)
    if context.run.stage("rl").finished:
        context.refuse_other_recipe(RL)  # before an earlier exam accepts the recipe
        exams.append(("after", "rl"))
    for name, stage in exams:
        await sit_exam(context, name, stage)


async def quickstart(context: Context) -> None:
    """The stages in a row, and a report."""
    await prepare(context)
    await practise(context)
    report(context.run, context.show)


async def prepare(context: Context) -> None:
    """The stages before RL, and the exams between them."""
    refuse_hopeless(context)
    await collect(context)
    await sft(context)
    for name, stage in exams_after_sft(context):
        await sit_exam(context, name, stage)
    await measure(context)


async def practise(context: Context) -> None:
    """RL, and the exam after it."""
    await rl(context)
    await sit_exam(context, "after", "rl")


WORK: dict[str, Callable[[Context], Coroutine[Any, Any, None]]] = {
    "quickstart": quickstart,
    "collect": collect,
    "sft": sft,
    "measure": measure,
    "rl": rl,
    "eval": evaluate,
}
"""What each command that takes a recipe does."""
