"""AdamW with moments of 8 bits, from bitsandbytes (2110.02861), where that is installed.

Which tensors have them, what they need, and how they come back from a checkpoint. On a GPU, where
pages may move to the host's memory, this is not tried by the tests.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from forethought.core.errors import RecipeError
from forethought.learning.settings import OptimizerSettings

CLASSES = {
    "adamw_8bit": ("AdamW8bit", "AdamW"),
    "paged_adamw_8bit": ("PagedAdamW8bit", "PagedAdamW"),
}
"""For each type its optimiser in `bitsandbytes.optim`, and the same with moments of 32 bits."""
QUANTIZED_FROM = 4096
"""Numbers from which on bitsandbytes quantises a tensor's moments, its `min_8bit_size`."""
MAPS = ("qmap1", "qmap2")
"""Entries of the state that are constants: what each of the 256 values stands for."""


def refuse_unusable(settings: OptimizerSettings, device: torch.device, section: str) -> None:
    """Raise `RecipeError` where the optimiser in that `section` of a recipe cannot run.

    One small step is made on `device`, so that what is missing shows before the first long one.
    """
    if settings.type not in CLASSES:
        return
    asked = f'{section}.type = "{settings.type}"'
    if settings.type == "paged_adamw_8bit" and device.type != "cuda":
        raise RecipeError(
            f"{asked}: only a GPU's memory has pages that can move, and the device is {device}; "
            'set it to "adamw_8bit" or "adamw"'
        )
    if find_spec("bitsandbytes") is None:
        raise RecipeError(
            f"{asked}: bitsandbytes is not installed; run pip install 'forethought[8bit]', or set "
            'it to "adamw"'
        )
    try:
        _step_once(settings.type, device)
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        raise RecipeError(
            f"{asked}: bitsandbytes as it is installed does not work on {device} "
            f"({type(error).__name__}: {error!s:.200}); run pip install -U 'forethought[8bit]', or "
            'set it to "adamw"'
        ) from error


def eight_bit_adamw(
    model: nn.Module, parameters: list[nn.Parameter], settings: OptimizerSettings
) -> list[torch.optim.Optimizer]:
    """AdamW over `parameters`: moments of 8 bits where that is advised, of 32 elsewhere.

    bitsandbytes advises 32 bits for embeddings (a head that is tied to one is the same tensor), for
    norms and biases, and keeps them for every tensor of less than `QUANTIZED_FROM` numbers; see
    https://huggingface.co/docs/bitsandbytes/optimizers. Two optimisers hold the two kinds: its own
    overrides (`GlobalOptimManager`) go by the addresses of tensors and outlive them.
    """
    module = import_module("bitsandbytes.optim")
    quantized = {id(each) for each in _quantized(model)}
    kinds = (
        [each for each in parameters if id(each) in quantized],
        [each for each in parameters if id(each) not in quantized],
    )
    return [
        getattr(module, name)(
            kind,
            lr=settings.rate,
            betas=(settings.beta_1, settings.beta_2),
            weight_decay=settings.weight_decay,
        )
        for name, kind in zip(CLASSES[settings.type], kinds, strict=True)
        if kind
    ]


def moments_size(model: nn.Module, settings: OptimizerSettings) -> int:
    """Bytes of the moments of all that is trained: two of 32 bits a number, or of 8.

    Every 256 numbers of 8 bits have one of 32 that scales them.
    """
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    if settings.type not in CLASSES:
        return 8 * trained
    quantized = sum(each.numel() for each in _quantized(model))
    return 8 * (trained - quantized) + 2 * (quantized + quantized // 64)


def is_bitsandbytes(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser is one of bitsandbytes."""
    return type(optimizer).__module__.startswith("bitsandbytes.")


def restore(optimizer: Any, states: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Put the saved state of each parameter, by its number, back into a bitsandbytes optimiser.

    In place: buffers that its own `load_state_dict` puts instead would not be paged.
    """
    number = 0
    for group_number, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            saved = states.get(number, {})
            number += 1
            if not saved:
                optimizer.state.pop(parameter, None)
                continue
            if not optimizer.state.get(parameter):
                optimizer.init_state(group, parameter, group_number, place)
            own = optimizer.state[parameter]
            for name, value in saved.items():
                own[name] = int(value) if name == "step" else own[name].copy_(value)


def _quantized(model: nn.Module) -> list[nn.Parameter]:
    """The trained matrices that are no embedding and are large enough."""
    embedded = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    return [
        each
        for each in model.parameters()
        if each.requires_grad
        and each.ndim > 1
        and each.numel() >= QUANTIZED_FROM
        and id(each) not in embedded
    ]


def _step_once(kind: str, device: torch.device) -> None:
    """One step of a tensor that is just large enough."""
    parameter = nn.Parameter(torch.zeros(QUANTIZED_FROM, device=device))
    parameter.grad = torch.ones_like(parameter)
    module = import_module("bitsandbytes.optim")
    getattr(module, CLASSES[kind][0])([parameter]).step()
