"""Stage 1: a teacher solves problems with the real tool, and every turn is recorded."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from forethought.agents.demonstrators import Demonstrator, can_show
from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.agents.tool_agent import ToolAgent, opening
from forethought.app.context import MOST_UNMEASURED, Context, accuracy
from forethought.app.graders import grader_for
from forethought.app.recipe import Recipe
from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.trajectory import Group
from forethought.core.verdict import Outcome
from forethought.policy.remote import RemotePolicy, check_endpoint
from forethought.tools.python_tool import PythonTool

PROBLEMS_A_STEP = 256


async def collect(context: Context) -> None:
    """Record trajectories; a step is a portion of the problems."""
    recipe, show = context.recipe, context.show
    show.stage(
        "Collect",
        "A teacher solves training problems. Each program it writes really runs in the sandbox; "
        "what that printed is what gets recorded.",
    )
    stage = context.begin("collect", context.collect_sections)
    if stage is None:
        return
    problems = _shown(context)
    starts = range(0, len(problems), PROBLEMS_A_STEP)
    recorded = [*context.run.groups("collect")]
    async with PythonTool(recipe.tool) as tool, _teacher(recipe, tool) as teacher:
        done = min(stage.next_step * PROBLEMS_A_STEP, len(problems))
        with show.bar("recording", len(problems), done) as bar:
            for step in range(stage.next_step, len(starts)):
                portion = problems[starts[step] : starts[step] + PROBLEMS_A_STEP]
                with stage.timed(step, "collect"):
                    groups = await attempt_groups(
                        teacher,
                        portion,
                        size=1,
                        seed=recipe.seed,
                        stage=f"collect/{step}",
                        flow=recipe.compute.flow,
                        progress=lambda _: bar.advance(),
                    )
                recorded += groups
                refuse_unmeasured(recorded, MOST_UNMEASURED, "the limit of this stage")
                stage.keep(step, groups)
                stage.log(step, accuracy(groups))
                stage.commit(step)
    stage.finish()
    where = context.run.path / "journal.sqlite"
    show.say(f"{len(problems)} trajectories ({told(recorded)}) are in {where}")


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
