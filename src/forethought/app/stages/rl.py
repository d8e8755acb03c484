"""Stage 4: reinforcement learning on the problems that the model solves sometimes."""

from dataclasses import replace
from functools import partial

from forethought.app.context import RL, Context, phase_stage
from forethought.app.graders import grader_for
from forethought.app.program import spoken
from forethought.app.refusals import refuse_biased_sampling, refuse_unusable_optimizers
from forethought.app.sampling import effective_sampling
from forethought.app.tool import open_tool
from forethought.core.randomness import derive_seed
from forethought.curation.difficulty import select
from forethought.curation.pool import Pool
from forethought.journal.stage import Stage
from forethought.learning.practice import RLPlan
from forethought.learning.rl import train_rl
from forethought.policy.local.value_head import add_value_head
from forethought.policy.remote import check_endpoint

SHOWN = {"accuracy": "accuracy", "tool/rate": "tool rate", "entropy": "entropy"}


async def rl(context: Context) -> None:
    """Improve the model that SFT ended with."""
    recipe, show = context.recipe, context.show
    context.finished("measure", spoken("measure", "RECIPE"))
    refuse_biased_sampling(recipe.sampling)
    refuse_unusable_optimizers(context, "rl")
    if recipe.rl.reward.judge is not None:
        await check_endpoint(recipe.rl.reward.judge.endpoint, "rl.reward.judge.endpoint")
    show.stage(
        "RL",
        f"{recipe.rl.loss.name}, credit by {recipe.rl.credited}: the model attempts each problem "
        f"{recipe.rl.group_size} times with the real tool; attempts that earn more than their "
        "group's mean are made likelier.",
    )
    stage = context.begin("rl", RL)
    if stage is None:
        return
    stage.put("sampling", effective_sampling(recipe.sampling))
    pool, settings = _pool(context), recipe.rl
    plan = RLPlan(settings=settings, seed=recipe.seed, flow=recipe.compute.flow)
    model = context.load(phase_stage(context.last_phase))
    if settings.needs_critic:
        add_value_head(model.network)
    reference = settings.needs_reference
    with context.engine(model, with_reference=reference, trains=True) as engine:
        async with open_tool(context, stage) as tool:
            agent = engine.agent(tool, grader_for(recipe, tool), recipe.agent, recipe.sampling)
            learner = engine.learner(
                settings.optimizer,
                settings.optimizer_steps(pool.batch),
                recipe.sampling.temperature,
                recipe.agent.max_tokens,
                section="rl.optimizer",
                critic=settings.credit.critic if settings.needs_critic else None,
            )
            with show.bar("rounds", settings.steps, stage.next_step) as bar:
                keeping = replace(context.keeping(stage), resumed=partial(bar.go_on, "round"))
                await train_rl(plan, agent, pool, learner, keeping, context.watcher(bar, SHOWN))
    stage.finish()
    _tell_end(context, stage)


def _tell_end(context: Context, stage: Stage) -> None:
    settings, show = context.recipe.rl, context.show
    if stage.next_step < settings.steps:
        show.say(
            f"ended after {stage.next_step} rounds: in the last "
            f"{settings.limits.rounds_without_update} every attempt was right"
        )
    show.say(f"weights are in {context.trained('rl')}")
    if settings.checkpoints.keep_best:
        *earlier, _ = context.keeping(stage).checkpoints.numbered()
        show.say(f"checkpoints of earlier rounds beside them: {', '.join(map(str, earlier))}")


def _pool(context: Context) -> Pool:
    """The problems that the model solves sometimes; a round has no more than there are."""
    kept = select(context.run.groups("measure")).kept
    return Pool(
        problems=kept,
        batch=min(context.recipe.rl.problems, len(kept)),
        seed=derive_seed(context.recipe.seed, "curriculum"),
    )
