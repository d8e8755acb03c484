"""Stage 3: how hard is each problem for the model as it is now."""

from collections import Counter

from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.app.context import MEASURE, MOST_UNMEASURED, Context, accuracy, phase_stage
from forethought.app.graders import grader_for
from forethought.app.program import spoken
from forethought.app.tool import open_tool
from forethought.curation.difficulty import Difficulty, Label, select
from forethought.journal.stage import Stage

PROBLEMS_A_STEP = 64


async def measure(context: Context) -> None:
    """Attempt every candidate several times; keep those that are solved sometimes."""
    recipe, show = context.recipe, context.show
    context.finished(phase_stage(context.last_phase), spoken("sft", "RECIPE"))
    show.stage(
        "Measure",
        f"Each candidate problem is attempted {recipe.measure.attempts} times. What is always or "
        "never solved teaches nothing by comparison, so it is dropped.",
    )
    stage = context.begin("measure", MEASURE)
    if stage is None:
        return
    with context.engine(context.load(phase_stage(context.last_phase))) as engine:
        async with open_tool(context, stage) as tool:
            agent = engine.agent(tool, grader_for(recipe, tool), recipe.agent, recipe.sampling)
            await attempt_candidates(context, stage, agent)
    found = select(context.run.groups("measure"))
    stage.put("difficulty", _document(found))
    stage.finish()
    show.say(
        f"kept {len(found.kept)} problems; dropped {len(found.dropped_all_right)} always solved "
        f"and {len(found.dropped_all_wrong)} never solved"
    )


async def attempt_candidates(context: Context, stage: Stage, solver: Solver) -> None:
    """Attempt every problem that is left; a step is a portion of them.

    Raises `RecipeError` when too many attempts cannot be measured.
    """
    recipe, problems = context.recipe, context.training.measure
    starts = range(0, len(problems), PROBLEMS_A_STEP)
    attempted = [*context.run.groups(stage.name)]
    done = min(stage.next_step * PROBLEMS_A_STEP, len(problems))
    with context.show.bar("measuring", len(problems), done) as bar:
        for step in range(stage.next_step, len(starts)):
            portion = problems[starts[step] : starts[step] + PROBLEMS_A_STEP]
            with stage.timed(step, "measure"):
                groups = await attempt_groups(
                    solver,
                    portion,
                    size=recipe.measure.attempts,
                    seed=recipe.seed,
                    stage=f"measure/{step}",
                    flow=recipe.compute.flow,
                )
            attempted += groups
            refuse_unmeasured(attempted, MOST_UNMEASURED, "the limit of this stage")
            stage.keep(step, groups)
            stage.log(step, accuracy(groups))
            stage.commit(step)
            bar.advance(len(portion))


def _document(found: Difficulty) -> dict[str, object]:
    labels = Counter(found.labels.values())
    return {
        "pass_rates": dict(found.pass_rates),
        "kept": len(found.kept),
        "dropped_all_right": len(found.dropped_all_right),
        "dropped_all_wrong": len(found.dropped_all_wrong),
        "labels": {label.value: labels[label] for label in Label},
    }
