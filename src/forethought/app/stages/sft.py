"""Stage 2: imitate the recorded trajectories, phase after phase."""

from collections.abc import Iterator
from pathlib import Path

import torch

from forethought.agents.groups import attempt_groups, refuse_unmeasured
from forethought.agents.protocol import Solver
from forethought.app.context import MOST_UNMEASURED, SFT, Context, phase_stage
from forethought.app.engine import available_memory, refuse_unbuildable
from forethought.app.refusals import trainable
from forethought.app.sampling import left_aside
from forethought.core.errors import RecipeError
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Trajectory
from forethought.journal.stage import Stage
from forethought.learning.demonstrations import Demonstrations, render
from forethought.learning.metrics import summarise
from forethought.learning.settings import PhaseSettings
from forethought.learning.sft import Pilot, SFTPlan, train_phase
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
from forethought.tasks.graders import BoxedGrader
from forethought.tools.python_tool import PythonTool, python_spec

SHOWN = {"loss": "loss", "pilot/sampled": "pilot accuracy"}


async def sft(context: Context) -> None:
    """Train through every phase; each ends with a checkpoint of its own."""
    context.finished("collect", "forethought collect RECIPE")
    trainable(context.recipe.model)
    context.show.stage(
        "SFT",
        "The model imitates the recorded trajectories, and only their author's own words: never "
        "the question, what the tool printed, or a call that failed.",
    )
    data: Demonstrations | None = None
    for number, phase in enumerate(context.recipe.sft.phases):
        stage = context.begin(phase_stage(phase), SFT, phases=number + 1)
        if stage is None:
            continue
        model = _model(context, number)
        data = data or _demonstrations(context, model)
        await _phase(context, phase, stage, model, data)


async def _phase(
    context: Context, phase: PhaseSettings, stage: Stage, model: LocalModel, data: Demonstrations
) -> None:
    recipe = context.recipe
    with context.engine(model) as engine:
        async with PythonTool(recipe.tool) as tool:
            agent = engine.agent(tool, BoxedGrader(), recipe.agent, recipe.sampling)
            plan = SFTPlan(
                phase=phase,
                seed=derive_seed(recipe.seed, "sft", phase.name),
                save_every=recipe.sft.save_every,
                pilot_every=recipe.sft.pilot_every,
                pilot=pilots(context, agent, phase),
            )
            section = f"sft.phases.{recipe.sft.phases.index(phase)}.optimizer"
            learner = engine.learner(phase.optimizer, phase.steps, section=section)
            with context.show.bar(f"phase {phase.name}", phase.steps, stage.next_step) as bar:
                await train_phase(
                    plan, data, learner, context.keeping(stage), context.watcher(bar, SHOWN)
                )
    stage.finish()
    context.show.say(f"phase {phase.name}: weights are in {context.trained(stage.name)}")


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


def _demonstrations(context: Context, model: LocalModel) -> Demonstrations:
    settings = context.recipe.sft
    data = render(
        _recorded(context),
        model.format,
        [python_spec(context.recipe.tool)],
        longest=settings.longest,
        train_failed_calls=settings.train_failed_calls,
        thinking=context.recipe.sampling.thinking,
    )
    if any(phase.tool_free for phase in settings.phases) and not data.tool_free:
        raise RecipeError(
            "sft: a phase has tool_free > 0, but no trajectory without a call was collected; "
            "give collect.demonstrators.styles some weight on tool_free"
        )
    context.show.say(
        f"{len(data.with_calls)} trajectories with calls, {len(data.tool_free)} without, "
        f"{data.too_long} left out as too long; {model.parameters / 1e6:.2f}M parameters"
    )
    return data


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
