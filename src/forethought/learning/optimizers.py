"""Optimisers and their schedules: AdamW, and Muon for the hidden matrices of a fresh model.

AdamW with moments of 8 bits is in `eight_bit`.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn

from forethought.learning.eight_bit import CLASSES, eight_bit_adamw, refuse_unusable
from forethought.learning.muon import Muon
from forethought.learning.settings import OptimizerSettings
from forethought.policy.local.value_head import value_head_of


def build_optimizers(
    model: nn.Module,
    settings: OptimizerSettings,
    head_rate: float | None = None,
    section: str = "optimizer",
) -> list[torch.optim.Optimizer]:
    """The optimisers that together own every trained parameter once.

    A critic's head, where there is one, learns with AdamW at a rate by which its values move by
    about `head_rate` a step, whatever the width of what it reads.

    Muon (https://kellerjordan.github.io/posts/muon/) takes matrices inside the layers; the
    embedding, the head and the norms stay with AdamW.

    Raises `RecipeError` that names `section` of the recipe for an optimiser that cannot run where
    the model is.
    """
    refuse_unusable(settings, next(model.parameters()).device, section)
    matrices = list(_hidden_matrices(model)) if settings.type == "muon" else []
    taken = {id(each) for each in matrices}
    head = value_head_of(model)
    heads = [] if head is None else list(head.parameters())
    taken |= {id(each) for each in heads}
    rest = [each for each in model.parameters() if each.requires_grad and id(each) not in taken]
    optimizers = _adamw(model, rest, settings) if rest else []
    if matrices:
        optimizers.append(Muon(matrices, lr=settings.muon_rate, weight_decay=settings.weight_decay))
    if head is not None:
        rate = (head_rate or settings.rate) / head.in_features
        optimizers.append(torch.optim.AdamW(heads, lr=rate, weight_decay=0.0))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["full_rate"] = group["lr"]
    return optimizers


def rate_share(settings: OptimizerSettings, step: int, steps: int) -> float:
    """The share of the full rate at `step` of `steps` (both count optimiser steps).

    >>> [rate_share(OptimizerSettings(warmup=2), step, 9) for step in (0, 1, 2, 8)]
    [0.5, 1.0, 1.0, 1.0]
    """
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    if settings.schedule == "constant":
        return 1.0
    progress = (step - settings.warmup) / max(1, steps - settings.warmup)
    wave = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return settings.floor + (1.0 - settings.floor) * wave


def _adamw(
    model: nn.Module, parameters: list[nn.Parameter], settings: OptimizerSettings
) -> list[torch.optim.Optimizer]:
    if settings.type in CLASSES:
        return eight_bit_adamw(model, parameters, settings)
    return [
        torch.optim.AdamW(
            parameters,
            lr=settings.rate,
            betas=(settings.beta_1, settings.beta_2),
            weight_decay=settings.weight_decay,
        )
    ]


def _hidden_matrices(model: nn.Module) -> Iterator[nn.Parameter]:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.ndim == 2 and ".layers." in name:
            yield parameter
