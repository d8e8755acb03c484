"""What sampling comes to, whole: the recipe's values, and nothing of what a model brings along.

A model's folder may recommend values of its own (`generation_config.json`). Training compares
log-probabilities of the plain distribution, so they are left aside, and that is said.
"""

from collections.abc import Mapping

from forethought.policy.local.decoder import unwrapped
from forethought.policy.local.models import NEUTRAL, LocalModel, sampling_defaults
from forethought.policy.protocol import SamplingSettings


def effective_sampling(sampling: SamplingSettings) -> dict[str, float]:
    """Every value that decides which token is chosen; those that no recipe can set are neutral.

    >>> effective_sampling(SamplingSettings(temperature=0.8))["top_k"]
    0
    """
    return NEUTRAL | {"temperature": sampling.temperature, "top_p": sampling.top_p}


def reply_tokens(sampling: SamplingSettings, model: LocalModel) -> int:
    """Tokens that one tool reply may take: as the recipe says, or a quarter of the context."""
    context: int = unwrapped(model.network).config.max_position_embeddings
    return sampling.reply_tokens or max(1, context // 4)


def left_aside(model: LocalModel, sampling: SamplingSettings) -> str | None:
    """What to say of a model that brings sampling values along; None for one that does not."""
    brought = sampling_defaults(model)
    if not brought:
        return None
    used = {name: effective_sampling(sampling)[name] for name in ("temperature", "top_p", *brought)}
    return (
        f"the model's generation_config asks for {_listed(brought)}: ignored for training and "
        f"exams; sampling uses {_listed(used)}"
    )


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_written(name, value)}" for name, value in values.items())


def _written(name: str, value: float) -> str:
    return "off" if value == 0 and name != "temperature" else str(value)
