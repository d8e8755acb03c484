"""Exams: a checkpoint, or a model behind an endpoint, sits held-out problems.

Each problem is attempted k times as sampled and once greedily.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from forethought.agents.protocol import Solver
from forethought.agents.tool_agent import ToolAgent
from forethought.app.context import RL, SFT, Context, phase_stage
from forethought.app.graders import grader_for
from forethought.app.problems import held_out
from forethought.app.program import spoken
from forethought.app.recipe import Recipe
from forethought.app.tool import open_tool
from forethought.evaluation.exam import Exam
from forethought.evaluation.results import ExamResult
from forethought.journal.stage import Stage
from forethought.policy.protocol import SamplingSettings, ThinkingHistory
from forethought.policy.remote import RemotePolicy, RemoteSettings, check_endpoint
from forethought.tasks.answers import canonical_answer
from forethought.tools.python_tool import PythonTool
from forethought.watch.exams import read_exam

REMOTE = ("seed", "model", "problems", "tool", "agent", "sampling", "eval")
"""What the exam of a model behind an endpoint depends on."""
Speaker = Callable[[SamplingSettings], Solver]
"""A solver that samples as it is told."""


async def sit_exam(context: Context, name: str, trained_by: str) -> ExamResult:
    """Let the model that stage `trained_by` ended with sit the exam called `name`."""
    context.finished(trained_by, spoken("rl" if trained_by == "rl" else "sft", "RECIPE"))
    after = [phase_stage(phase) for phase in context.recipe.sft.phases]
    phases = after.index(trained_by) + 1 if trained_by in after else None
    sections = (*(RL if phases is None else SFT), "eval")
    stage = _begin(context, name, sections, phases)
    if stage is not None:
        recipe = context.recipe
        exam = _exam(recipe)
        with context.engine(context.load(trained_by)) as engine:
            async with open_tool(context, stage) as tool:
                grader = grader_for(recipe, tool)
                await _sit(
                    context,
                    stage,
                    name,
                    exam,
                    lambda sampling: engine.agent(tool, grader, recipe.agent, sampling),
                )
    return _result(context, name)


async def sit_remotely(context: Context, settings: RemoteSettings) -> ExamResult:
    """Let the model behind an endpoint sit the exam called `remote`."""
    stage = _begin(context, "remote", REMOTE)
    if stage is not None:
        exam = _exam(context.recipe)
        await check_endpoint(settings, "model")
        async with (
            open_tool(context, stage) as tool,
            _remote(context.recipe, settings, tool) as speaker,
        ):
            await _sit(context, stage, "remote", exam, speaker)
    return _result(context, "remote")


def exams_after_sft(context: Context) -> list[tuple[str, str]]:
    """(name, stage) of the exams before RL: one after each phase; the last is `before`."""
    phases = context.recipe.sft.phases
    earlier = [(phase.name, phase_stage(phase)) for phase in phases[:-1]]
    return [*earlier, ("before", phase_stage(phases[-1]))]


def _begin(
    context: Context, name: str, sections: tuple[str, ...], phases: int | None = None
) -> Stage | None:
    attempts = context.recipe.eval.attempts
    context.show.stage(
        f"Exam: {name}", f"Held-out problems, {attempts} sampled attempts at each and a greedy one."
    )
    return context.begin(f"eval_{name}", sections, phases)


def _exam(recipe: Recipe) -> Exam:
    settings = recipe.eval
    return Exam(
        problems=held_out(recipe.problems, settings.problems),
        settings=settings,
        conditions={
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "thinking": _thinking(recipe),
            "max_turn_tokens": recipe.sampling.max_tokens,
            "max_tokens": recipe.agent.max_tokens,
            "max_turns": recipe.agent.max_turns,
        },
        canonical=canonical_answer,
    )


def _thinking(recipe: Recipe) -> ThinkingHistory:
    """What is seen of earlier thinking: as it was trained, or as the endpoint is asked."""
    if isinstance(recipe.model, RemoteSettings):
        return recipe.model.thinking
    return recipe.sampling.thinking


async def _sit(context: Context, stage: Stage, name: str, exam: Exam, speaker: Speaker) -> None:
    recipe = context.recipe
    settings = recipe.eval
    sampling = recipe.sampling.model_copy(
        update={"temperature": settings.temperature, "top_p": settings.top_p}
    )
    greedy = sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0})
    total = len(exam.problems) * (settings.attempts + 1)
    with context.show.bar("sitting", total) as bar, stage.timed(0, "exam"):
        result, groups = await exam.sit(
            speaker(sampling),
            speaker(greedy),
            name=name,
            seed=recipe.seed,
            flow=recipe.compute.flow,
            progress=lambda _: bar.advance(),
        )
    stage.keep(0, groups)
    stage.put(f"exam/{name}", result.model_dump(mode="json"))
    stage.commit(0)
    stage.finish()


def _result(context: Context, name: str) -> ExamResult:
    result = read_exam(context.run, f"eval_{name}", name)
    context.show.say(
        f"avg@{result.attempts} {result.average}   greedy {result.greedy}   "
        f"tool rate {result.sampled_tools.rate:.2f}"
    )
    return result


@asynccontextmanager
async def _remote(
    recipe: Recipe, settings: RemoteSettings, tool: PythonTool
) -> AsyncGenerator[Speaker]:
    """Policies at the endpoint, one a way of sampling; all are closed at the end."""
    policies: list[RemotePolicy] = []
    grader = grader_for(recipe, tool)

    def speaker(sampling: SamplingSettings) -> Solver:
        policies.append(RemotePolicy(settings, sampling))
        return ToolAgent(policy=policies[-1], tools=tool, grader=grader, limits=recipe.agent)

    try:
        yield speaker
    finally:
        for policy in policies:
            await policy.close()
