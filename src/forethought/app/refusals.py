"""What is refused before anything is begun, since it would otherwise fail hours later.

A stage asks for its own part when it starts; `quickstart` asks for all of it first.
"""

from pathlib import Path

from forethought.app.context import Context, phase_stage
from forethought.app.engine import chosen_device
from forethought.app.problems import held_out
from forethought.core.errors import RecipeError
from forethought.learning.eight_bit import refuse_unusable
from forethought.policy.local.gguf import is_converted
from forethought.policy.local.settings import GGUFModel, LocalModelSettings, ModelSettings
from forethought.policy.protocol import SamplingSettings
from forethought.policy.remote import RemoteSettings


def refuse_hopeless(context: Context) -> None:
    """Raise `RecipeError` for whatever would stop the whole pipeline at a later stage."""
    recipe, run = context.recipe, context.run
    model = trainable(recipe.model)
    refuse_biased_sampling(recipe.sampling)
    refuse_unusable_optimizers(context)
    # A run that needs a file no more goes on without it.
    if isinstance(model, GGUFModel) and not run.stage(phase_stage(recipe.sft.phases[0])).finished:
        is_converted(model.file, Path(model.folder))
    if not run.stage("measure").finished:
        _ = context.training
    if not run.stage("eval_after").finished:
        held_out(recipe.problems, recipe.eval.problems)


def trainable(model: ModelSettings) -> LocalModelSettings:
    """The model, if it can be trained here. Raises `RecipeError` for one behind an endpoint."""
    if isinstance(model, RemoteSettings):
        raise RecipeError(
            f'model.type = "openai" ({model.model}): a model behind an endpoint sits exams but '
            'is not trained here; use "fresh", "pretrained" or "gguf"'
        )
    return model


def refuse_unusable_optimizers(context: Context, stages: str = "") -> None:
    """Raise `RecipeError` for an optimiser that cannot run here, of a stage that has not finished.

    Only of stages whose names begin with `stages`. Also for a GPU that is not there.
    """
    recipe, device = context.recipe, chosen_device(context.recipe.compute)
    optimizers = {
        phase_stage(phase): (phase.optimizer, f"sft.phases.{number}.optimizer")
        for number, phase in enumerate(recipe.sft.phases)
    } | {"rl": (recipe.rl.optimizer, "rl.optimizer")}
    for stage, (settings, section) in optimizers.items():
        if stage.startswith(stages) and not context.run.stage(stage).finished:
            refuse_unusable(settings, device, section)


def refuse_biased_sampling(sampling: SamplingSettings) -> None:
    """Raise `RecipeError` for sampling whose probabilities are not those that are trained."""
    if sampling.temperature == 0 or sampling.top_p < 1:
        raise RecipeError(
            f"sampling.temperature = {sampling.temperature}, sampling.top_p = {sampling.top_p}: RL "
            "compares log-probabilities of the whole distribution, so it needs a temperature "
            "above 0 and top_p = 1 (exams have settings of their own)"
        )
