"""What a recipe says otherwise than the model that it starts from was made with.

Covers models in a folder that say so (`policy/local/description.py`), as all that were trained here
do. A model from the hub, or from a GGUF file, is not asked.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from forethought.app.recipe import Recipe
from forethought.policy.local.description import saved_thinking
from forethought.policy.local.settings import PretrainedModel
from forethought.policy.protocol import ThinkingHistory


def other_thinking(recipe: Recipe) -> Iterator[str]:
    """A sentence where the model was trained to see its earlier thinking otherwise."""
    model, now = recipe.model, recipe.sampling.thinking
    if not isinstance(model, PretrainedModel):
        return
    made: ThinkingHistory | None = None
    with suppress(OSError, ValueError):  # it is refused with the reason when it is loaded
        made = saved_thinking(Path(model.name))
    if made not in (None, now):
        yield (
            f'sampling.thinking = "{now}": the model in {model.name} was trained with "{made}", so '
            "that it is trained and examined here on conversations of another form than it knows; "
            f'set sampling.thinking = "{made}", unless it is to learn the other'
        )
