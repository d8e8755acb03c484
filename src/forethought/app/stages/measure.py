"""Stage 3: how hard is each problem for the model as it is now."""

from collections import Counter

from forethought.agents.groups import attempt_groups
from forethought.app.context import MEASURE, Context, phase_stage
from forethought.app.engine import Engine, start_engine
from forethought.core.trajectory import Group
from forethought.curation.difficulty import Difficulty, Label, select
from forethought.journal.stage import Stage
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool

PROBLEMS_A_STEP = 64


async def measure(context: Context) -> None:
    """Attempt every candidate several times; keep those that are solved sometimes."""
    recipe, show = context.recipe, context.show
    context.finished(phase_stage(context.last_phase), "forethought sft RECIPE")
    show.stage(
        "Measure",
        f"Each candidate problem is attempted {recipe.measure.attempts} times. What is always or "
        "never solved teaches nothing by comparison, so it is dropped.",
    )
    stage = context.begin("measure", MEASURE)
    if stage is None:
        return
    with start_engine(context.load(phase_stage(context.last_phase)), recipe.compute) as engine:
        await _attempt(context, stage, engine)
    found = select(context.run.groups("measure"))
    stage.put("difficulty", _document(found))
    stage.finish()
    show.say(
        f"kept {len(found.kept)} problems; dropped {len(found.dropped_all_right)} always solved "
        f"and {len(found.dropped_all_wrong)} never solved"
    )


async def _attempt(context: Context, stage: Stage, engine: Engine) -> None:
    recipe, problems = context.recipe, context.training.measure
    starts = range(0, len(problems), PROBLEMS_A_STEP)
    async with PythonTool(recipe.tool) as tool:
        agent = engine.agent(tool, BoxedGrader(), recipe.agent, recipe.sampling)
        done = min(stage.next_step * PROBLEMS_A_STEP, len(problems))
        with context.show.bar("measuring", len(problems), done) as bar:
            for step in range(stage.next_step, len(starts)):
                portion = problems[starts[step] : starts[step] + PROBLEMS_A_STEP]
                with stage.timed(step, "measure"):
                    groups = await attempt_groups(
                        agent,
                        portion,
                        size=recipe.measure.attempts,
                        seed=recipe.seed,
                        stage=f"measure/{step}",
                        at_once=recipe.compute.at_once,
                    )
                stage.keep(step, groups)
                stage.log(step, {"accuracy": _accuracy(groups)})
                stage.commit(step)
                bar.advance(len(portion))


def _accuracy(groups: list[Group]) -> float:
    measured = [episode.right for group in groups for episode in group.measured]
    return sum(measured) / max(1, len(measured))


def _document(found: Difficulty) -> dict[str, object]:
    labels = Counter(found.labels.values())
    return {
        "pass_rates": dict(found.pass_rates),
        "kept": len(found.kept),
        "dropped_all_right": len(found.dropped_all_right),
        "dropped_all_wrong": len(found.dropped_all_wrong),
        "labels": {label.value: labels[label] for label in Label},
    }
