"""Stage 1: a teacher solves problems with the real tool, and every turn is recorded.

Or somebody's recorded turns are taken from a file.
"""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forethought.agents.demonstrators import Demonstrator, can_show
from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.agents.imported import imported
from forethought.agents.protocol import Solver
from forethought.agents.tool_agent import ToolAgent, opening
from forethought.app.context import MOST_UNMEASURED, Context, accuracy
from forethought.app.graders import grader_for
from forethought.app.recipe import Recipe
from forethought.app.show import Bar
from forethought.app.tool import open_tool
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.trajectory import Group
from forethought.core.verdict import Outcome
from forethought.journal.stage import Stage
from forethought.policy.remote import RemotePolicy, check_endpoint
from forethought.tools.python_tool import PythonTool, python_spec

A_STEP = 256
"""Trajectories that are recorded at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """So many trajectories to record; `portion` gives those of one step and advances the bar."""

    count: int
    portion: Callable[[int, Bar], Awaitable[list[Group]]]


async def collect(context: Context) -> None:
    """Record trajectories; a step is a portion of them."""
    file, show = context.recipe.collect.trajectories, context.show
    show.stage(
        "Collect",
        "Recorded trajectories are taken from a file as they are: no tool runs, nothing is graded."
        if file
        else "A teacher solves training problems. Each program it writes really runs in the "
        "sandbox; what that printed is what gets recorded.",
    )
    stage = context.begin("collect", context.collect_sections)
    if stage is None:
        return
    async with _from_file(context) if file else _from_teacher(context, stage) as source:
        done = min(stage.next_step * A_STEP, source.count)
        with show.bar("recording", source.count, done) as bar:
            for step in range(stage.next_step, math.ceil(source.count / A_STEP)):
                with stage.timed(step, "collect"):
                    groups = await source.portion(step, bar)
                stage.keep(step, groups)
                stage.log(step, accuracy(groups))
                stage.commit(step)
    stage.finish()
    recorded, where = told(context.run.groups("collect")), context.run.path / "journal.sqlite"
    show.say(f"{source.count} trajectories ({recorded}) are in {where}")


@asynccontextmanager
async def _from_file(context: Context) -> AsyncGenerator[_Source]:
    """The conversations of `collect.trajectories`."""
    groups = _usable(context)

    async def portion(step: int, bar: Bar) -> list[Group]:
        some = list(groups[step * A_STEP : (step + 1) * A_STEP])
        bar.advance(len(some))
        return some

    yield _Source(count=len(groups), portion=portion)


def _usable(context: Context) -> tuple[Group, ...]:
    """What the rows of `collect.trajectories` hold.

    Raises `RecipeError` for rows that cannot be used, unless they are to be left out and there are
    others, and where no row is right.
    """
    settings, file = context.recipe.collect, context.recipe.collect.trajectories
    found = imported(Path(file), [python_spec(context.recipe.tool)])
    if found.unusable:
        count = f"{len(found.unusable)} of {len(found.unusable) + len(found.groups)} rows"
        first = found.unusable[0]
        if settings.unusable == "refuse" or not found.groups:
            raise RecipeError(
                f"{file}: {count} cannot be used (the first: {first}). Mend them, or set "
                'collect.unusable = "leave_out" to take the others alone'
            )
        context.show.say(f"{count} are left out, since they cannot be used (the first: {first})")
    if not any(episode.right for group in found.groups for episode in group.episodes):
        raise RecipeError(
            f"{file}: none of {len(found.groups)} rows is right by its `outcome` or `reward`, and "
            "only right ones are imitated; mend those fields, or leave them out"
        )
    return found.groups


@asynccontextmanager
async def _from_teacher(context: Context, stage: Stage) -> AsyncGenerator[_Source]:
    """What a teacher shows. Raises `RecipeError` when too many attempts are not measured."""
    recipe = context.recipe
    problems, recorded = _shown(context), [*context.run.groups("collect")]
    async with open_tool(context, stage) as tool, _teacher(recipe, tool) as teacher:

        async def portion(step: int, bar: Bar) -> list[Group]:
            groups = await attempt_groups(
                teacher,
                problems[step * A_STEP : (step + 1) * A_STEP],
                size=1,
                seed=recipe.seed,
                stage=f"collect/{step}",
                flow=recipe.compute.flow,
                progress=lambda _: bar.advance(),
            )
            recorded.extend(groups)
            refuse_unmeasured(recorded, MOST_UNMEASURED, "the limit of this stage")
            return groups

        yield _Source(count=len(problems), portion=portion)


def _shown(context: Context) -> list[Problem]:
    """The problems that the teacher can show: scripts need one that comes with a program.

    Raises `RecipeError` when there is none.
    """
    settings, given = context.recipe.collect, context.training.collect
    if settings.teacher is not None:
        return list(given)
    shown = [problem for problem in given if can_show(problem, settings.demonstrators)]
    if not shown:
        remedy = "add `program` to them, give collect.demonstrators.styles.tool_free a weight"
        if context.recipe.problems.type == "code":
            remedy = "add a solution to them (`code` or, as HumanEval does, `canonical_solution`)"
        raise RecipeError(
            f"collect: none of {len(given)} problems comes with a program to show; {remedy}, or "
            "name a collect.teacher"
        )
    if len(shown) < len(given):
        left_out = len(given) - len(shown)
        context.show.say(f"{left_out} of {len(given)} problems have no program: left out")
    return shown


def told(groups: Iterable[Group]) -> str:
    """How the attempts of `groups` came out, in words."""
    found = Counter(episode.verdict.outcome for group in groups for episode in group.episodes)
    return ", ".join(f"{found[each]} {each.value.replace('_', ' ')}" for each in Outcome)


@asynccontextmanager
async def _teacher(recipe: Recipe, tool: PythonTool) -> AsyncGenerator[Solver]:
    """Who shows the problems: a model behind an endpoint, or the scripts."""
    settings, grader = recipe.collect.teacher, grader_for(recipe, tool)
    if settings is None:
        yield Demonstrator(
            tools=tool,
            grader=grader,
            settings=recipe.collect.demonstrators,
            opening=partial(opening, limits=recipe.agent),
        )
        return
    await check_endpoint(settings, "collect.teacher")
    async with RemotePolicy(settings, recipe.sampling) as policy:
        yield ToolAgent(policy=policy, tools=tool, grader=grader, limits=recipe.agent)
