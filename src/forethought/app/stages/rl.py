"""Stage 4: reinforcement learning on the problems that the model solves sometimes."""

from forethought.app.context import RL, Context, phase_stage
from forethought.app.engine import start_engine
from forethought.core.errors import RecipeError
from forethought.core.randomness import derive_seed
from forethought.curation.difficulty import select
from forethought.curation.pool import Pool
from forethought.learning.losses.catalogue import objective
from forethought.learning.rl import RLPlan, train_rl
from forethought.policy.protocol import SamplingSettings
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool

SHOWN = {"accuracy": "accuracy", "tool/rate": "tool rate", "entropy": "entropy"}


async def rl(context: Context) -> None:
    """Improve the model that SFT ended with."""
    recipe, show = context.recipe, context.show
    context.finished("measure", "forethought measure RECIPE")
    show.stage(
        "RL",
        f"{recipe.rl.loss.name}: the model attempts each problem {recipe.rl.group_size} times with "
        "the real tool; attempts that earn more than their group's mean are made likelier.",
    )
    stage = context.begin("rl", RL)
    if stage is None:
        return
    refuse_biased_sampling(recipe.sampling)
    kept = select(context.run.groups("measure")).kept
    pool = Pool(
        problems=kept,
        batch=min(recipe.rl.problems, len(kept)),
        seed=derive_seed(recipe.seed, "curriculum"),
    )
    settings = recipe.rl
    plan = RLPlan(
        settings=settings,
        reward=settings.reward,
        advantage=settings.advantage,
        objective=objective(settings.loss),
        seed=recipe.seed,
        at_once=recipe.compute.at_once,
    )
    model = context.load(phase_stage(context.last_phase))
    reference = settings.loss.kl_coefficient > 0
    with start_engine(model, recipe.compute, with_reference=reference) as engine:
        async with PythonTool(recipe.tool) as tool:
            agent = engine.agent(tool, BoxedGrader(), recipe.agent, recipe.sampling)
            learner = engine.learner(
                settings.optimizer,
                settings.steps * settings.updates,
                recipe.sampling.temperature,
                recipe.agent.max_tokens,
            )
            with show.bar("rounds", settings.steps, stage.next_step) as bar:
                await train_rl(
                    plan, agent, pool, learner, context.keeping(stage), context.watcher(bar, SHOWN)
                )
    stage.finish()
    show.say(f"weights are in {context.trained('rl')}")


def refuse_biased_sampling(sampling: SamplingSettings) -> None:
    """Raise `RecipeError` for sampling whose probabilities are not those that are trained."""
    if sampling.temperature == 0 or sampling.top_p < 1:
        raise RecipeError(
            f"sampling.temperature = {sampling.temperature}, sampling.top_p = {sampling.top_p}: RL "
            "compares log-probabilities of the whole distribution, so it needs a temperature "
            "above 0 and top_p = 1 (exams have settings of their own)"
        )
