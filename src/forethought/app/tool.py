"""The Python tool for one stage, which keeps what the tool's sandbox did there.

Not for the stage's steps: those are equal in equal runs, and this depends on the host.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict

from forethought.app.context import Context
from forethought.journal.files import intact
from forethought.journal.run import JOURNAL
from forethought.journal.stage import Stage
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.usage import Usage, read_usage
from forethought.watch.tool import USAGE


@asynccontextmanager
async def open_tool(context: Context, stage: Stage) -> AsyncGenerator[PythonTool]:
    """The recipe's Python tool while `stage` uses it, however that ends.

    What its sandbox did is then in the stage's document `tool`, added to what that held before the
    stage was resumed; what went wrong with it is said. Of a process that was killed nothing is
    added. Raises `RecipeError` where the host does not allow the isolation asked for.
    """
    async with PythonTool(context.recipe.tool) as tool:
        try:
            yield tool
        finally:
            _keep(context, stage, tool.usage)


def _keep(context: Context, stage: Stage, usage: Usage) -> None:
    if usage.trouble:
        waited = f"programs waited {usage.queued_each:.2f} s on average"
        context.show.say(f"the Python tool: {usage.trouble}; {waited}")
    with intact(context.run.path / JOURNAL):
        earlier = read_usage(stage.get(USAGE) or {})
    stage.put(USAGE, asdict(earlier + usage))
