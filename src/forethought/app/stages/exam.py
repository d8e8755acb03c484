"""Exams: a checkpoint sits held-out problems, sampled k times and once greedily."""

from forethought.app.context import RL, SFT, Context, phase_stage
from forethought.app.engine import start_engine
from forethought.app.problems import held_out
from forethought.evaluation.exam import Exam
from forethought.evaluation.results import ExamResult
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool


async def sit_exam(context: Context, name: str, trained_by: str) -> ExamResult:
    """Let the model that stage `trained_by` ended with sit the exam called `name`."""
    recipe, show = context.recipe, context.show
    context.finished(trained_by, "forethought quickstart, or the stages before this one")
    show.stage(
        f"Exam: {name}",
        f"Held-out problems, {recipe.eval.attempts} sampled attempts at each and a greedy one.",
    )
    stage = context.begin(f"eval_{name}", (*(RL if trained_by == "rl" else SFT), "eval"))
    if stage is None:
        document = context.run.stage(f"eval_{name}").get(f"exam/{name}")
        return ExamResult.model_validate(document)
    settings = recipe.eval
    sampling = recipe.sampling.model_copy(
        update={"temperature": settings.temperature, "top_p": settings.top_p}
    )
    exam = Exam(
        problems=held_out(recipe.problems, settings.problems),
        settings=settings,
        conditions={
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": min(recipe.sampling.max_tokens, recipe.agent.max_tokens),
            "max_turns": recipe.agent.max_turns,
        },
    )
    greedy = sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0})
    with start_engine(context.load(trained_by), recipe.compute) as engine:
        async with PythonTool(recipe.tool) as tool:
            total = len(exam.problems) * (settings.attempts + 1)
            with show.bar("sitting", total) as bar, stage.timed(0, "exam"):
                result, groups = await exam.sit(
                    engine.agent(tool, BoxedGrader(), recipe.agent, sampling),
                    engine.agent(tool, BoxedGrader(), recipe.agent, greedy),
                    name=name,
                    seed=recipe.seed,
                    at_once=recipe.compute.at_once,
                    progress=lambda _: bar.advance(),
                )
    stage.keep(0, groups)
    stage.put(f"exam/{name}", result.model_dump(mode="json"))
    stage.commit(0)
    stage.finish()
    show.say(
        f"avg@{result.attempts} {result.average}   greedy {result.greedy}   "
        f"tool rate {result.sampled_tools.rate:.2f}"
    )
    return result


def exams_after_sft(context: Context) -> list[tuple[str, str]]:
    """(name, stage) of the exams before RL: one after each phase; the last is `before`."""
    phases = context.recipe.sft.phases
    earlier = [(phase.name, phase_stage(phase)) for phase in phases[:-1]]
    return [*earlier, ("before", phase_stage(phases[-1]))]
