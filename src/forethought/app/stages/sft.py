"""Stage 2: imitate the recorded trajectories, phase after phase."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.app.context import CHOSEN, MOST_UNMEASURED, SFT, Context, phase_stage
from forethought.app.engine import Engine, available_memory
from forethought.app.graders import grader_for
from forethought.app.memory import refuse_unbuildable
from forethought.app.program import spoken
from forethought.app.refusals import refuse_unusable_optimizers, trainable
from forethought.app.sampling import left_aside, reply_tokens
from forethought.app.tool import open_tool
from forethought.core.errors import RecipeError
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Trajectory
from forethought.journal.stage import Stage
from forethought.learning.demonstrations import Demonstrations, render, set_apart
from forethought.learning.held_out import HELD_OUT_LOSS, HeldOut, best_first
from forethought.learning.metrics import summarise
from forethought.learning.settings import PhaseSettings
from forethought.learning.sft import HeldOutPlan, Pilot, SFTPlan, train_phase
from forethought.policy.local.gguf import convert_gguf
from forethought.policy.local.models import (
    LocalModel,
    fresh_model,
    fresh_parameters,
    load_local,
    with_adapters,
)
from forethought.policy.local.settings import FreshModel, GGUFModel
from forethought.policy.small_tokenizer import train_tokenizer
from forethought.tools.python_tool import python_spec
from forethought.watch.phases import ending, read_phase

SHOWN = {"loss": "loss", HELD_OUT_LOSS: "held-out loss", "pilot/sampled": "pilot accuracy"}


async def sft(context: Context) -> None:
    """Train through every phase; each ends with a checkpoint of its own."""
    context.finished("collect", spoken("collect", "RECIPE"))
    trainable(context.recipe.model)
    refuse_unusable_optimizers(context, "sft")
    context.show.stage(
        "SFT",
        "The model imitates the recorded trajectories, and only their author's own words: never "
        "the question, what the tool printed, or a call that failed.",
    )
    data: tuple[Demonstrations, Demonstrations | None] | None = None
    for number, phase in enumerate(context.recipe.sft.phases):
        stage = context.begin(phase_stage(phase), SFT, phases=number + 1)
        if stage is None:
            continue
        model = replace(_model(context, number), thinking=context.recipe.sampling.thinking)
        data = data or _demonstrations(context, model)
        await _phase(context, phase, stage, model, *data)


async def _phase(
    context: Context,
    phase: PhaseSettings,
    stage: Stage,
    model: LocalModel,
    data: Demonstrations,
    held_out: Demonstrations | None,
) -> None:
    recipe = context.recipe
    with context.engine(model, trains=True) as engine:
        async with open_tool(context, stage) as tool:
            agent = engine.agent(tool, grader_for(recipe, tool), recipe.agent, recipe.sampling)
            plan = SFTPlan(
                phase=phase,
                seed=derive_seed(recipe.seed, "sft", phase.name),
                save_every=recipe.sft.save_every,
                pilot_every=recipe.sft.pilot_every,
                pilot=pilots(context, agent, phase),
                held_out=held_out and _measuring(context, engine, held_out, phase),
            )
            section = f"sft.phases.{recipe.sft.phases.index(phase)}.optimizer"
            learner = engine.learner(phase.optimizer, phase.steps, section=section)
            with context.show.bar(f"phase {phase.name}", phase.steps, stage.next_step) as bar:
                keeping = replace(context.keeping(stage), resumed=partial(bar.go_on, "step"))
                await train_phase(plan, data, learner, keeping, context.watcher(bar, SHOWN))
    best = best_first(stage.series(HELD_OUT_LOSS))
    if recipe.sft.keep == "best" and best:
        stage.put(CHOSEN, {"step": best[0]})
    stage.finish()
    pilots_held = context.run.series(stage.name, "pilot/sampled")
    if said := ending(read_phase(phase.model_dump()), stage.next_step, pilots_held):
        context.show.say(said)
    context.show.say(f"phase {phase.name}: weights are in {context.trained(stage.name)}")


def _measuring(
    context: Context, engine: Engine, held_out: Demonstrations, phase: PhaseSettings
) -> HeldOutPlan:
    """How a phase measures what is held out: on rows of the kinds that it trains on.

    Raises `RecipeError` when there is none.
    """
    rows = held_out.drawn_from(phase.tool_free)
    settings, compute = context.recipe.sft, context.recipe.compute
    if not rows:
        raise RecipeError(
            f"sft.held_out = {settings.held_out}: nothing that is held out is of a kind that "
            f"phase {phase.name} trains on; raise it, or collect more"
        )
    measured = HeldOut.of(rows, engine.model.tokenizer, engine.crew, compute)
    return HeldOutPlan(
        measure=measured.measure,
        every=settings.held_out_every,
        keep_best=settings.best_kept,
        say=context.show.say,
    )


def _model(context: Context, number: int) -> LocalModel:
    """What a phase starts from: the phase before, or the recipe's model."""
    settings = trainable(context.recipe.model)
    if number:
        return context.load(phase_stage(context.recipe.sft.phases[number - 1]))
    if isinstance(settings, FreshModel):
        texts = (message.text for one in _recorded(context) for message in one.messages)
        calls = (
            call.arguments
            for one in _recorded(context)
            for turn in one.turns
            for call in turn.message.calls
        )
        spec = python_spec(context.recipe.tool)
        tokenizer = train_tokenizer((*texts, *calls), [spec], settings.vocabulary)
        parameters = fresh_parameters(settings, tokenizer.get_vocab_size())
        refuse_unbuildable(parameters, available_memory(torch.device("cpu")))
        return fresh_model(settings, tokenizer, derive_seed(context.recipe.seed, "weights"))
    if isinstance(settings, GGUFModel):
        folder = convert_gguf(settings.file, Path(settings.folder))
        model = load_local(str(folder), settings.format)
    else:
        model = load_local(settings.name, settings.format)
    if note := left_aside(model, context.recipe.sampling):
        context.show.say(note)
    if settings.lora_rank:
        seed = derive_seed(context.recipe.seed, "adapters")
        return with_adapters(model, settings.lora_rank, settings.lora_alpha, seed)
    return model


def _recorded(context: Context) -> Iterator[Trajectory]:
    """The trajectories of the demonstrations that were right."""
    for group in context.run.groups("collect"):
        for episode in group.measured:
            if episode.right:
                yield from episode.trajectories


def _demonstrations(
    context: Context, model: LocalModel
) -> tuple[Demonstrations, Demonstrations | None]:
    """What is trained on, and what is held out if anything is."""
    settings = context.recipe.sft
    training, held_out = _recorded(context), None
    if settings.held_out:
        seed = derive_seed(context.recipe.seed, "sft", "held_out")
        training, apart = set_apart(training, settings.held_out, seed)
        held_out = _rendered(context, model, apart)
    data = _rendered(context, model, training)
    if any(phase.tool_free for phase in settings.phases) and not data.tool_free:
        raise RecipeError(
            "sft: a phase has tool_free > 0, but no trajectory without a call was collected; "
            "give collect.demonstrators.styles some weight on tool_free, or add such rows to "
            "collect.trajectories"
        )
    context.show.say(
        f"{len(data.with_calls)} trajectories with calls, {len(data.tool_free)} without, "
        f"{data.too_long} left out as too long; {model.parameters / 1e6:.2f}M parameters"
    )
    if held_out is not None:
        rows = len(held_out.with_calls) + len(held_out.tool_free)
        context.show.say(f"{rows} more are held out and only measured")
    return data, held_out


def _rendered(
    context: Context, model: LocalModel, trajectories: Iterable[Trajectory]
) -> Demonstrations:
    settings = context.recipe.sft
    return render(
        trajectories,
        model.format,
        [python_spec(context.recipe.tool)],
        longest=settings.longest,
        train_failed_calls=settings.train_failed_calls,
        thinking=context.recipe.sampling.thinking,
        reply_tokens=reply_tokens(context.recipe.sampling, model),
    )


def pilots(context: Context, solver: Solver, phase: PhaseSettings) -> Pilot:
    """Attempts at problems set apart from the training side, one each.

    A pilot raises `RecipeError` when too many of its attempts cannot be measured.
    """
    problems = context.training.pilot

    async def pilot(step: int) -> dict[str, float]:
        groups = await attempt_groups(
            solver,
            problems,
            size=1,
            seed=context.recipe.seed,
            stage=f"pilot/{phase.name}/{step}",
            flow=context.recipe.compute.flow,
        )
        refuse_unmeasured(groups, MOST_UNMEASURED, "the limit of a pilot")
        found = summarise(groups)
        return {"pilot/sampled": found["accuracy"], "pilot/calls": found["tool/calls"]}

    return pilot
