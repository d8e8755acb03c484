"""How much memory training takes, and whether there is enough: asked before anything is begun."""

from collections.abc import Sequence
from typing import Any

from forethought.core.errors import RecipeError
from forethought.learning.eight_bit import moments_size
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.policy.local.decoder import Decoder, unwrapped
from forethought.policy.local.fused import PACKED_FROM
from forethought.policy.local.models import LocalModel
from forethought.policy.local.replica import trained_parameters

WORKING = 400 * 2**20
"""Bytes beside what is counted: caches, and what libraries take."""


def memory_needed(
    model: LocalModel,
    workers: int,
    *,
    on_gpu: bool,
    with_reference: bool = False,
    optimizers: Sequence[OptimizerSettings] = (),
    passing: int = 0,
    trains: bool = True,
) -> int:
    """Bytes that `model` takes beside what it occupies already, before it has moved.

    Where it `trains`, a gradient, the moments of the largest of `optimizers` (AdamW), and `passing`
    bytes for a forward and backward pass of each who computes; a gradient's room for each worker in
    any case. On a CPU the weights lie where they will be used, and every sampler has most matrices
    once more in the order in which it reads them; a GPU has to take the weights, too.
    """
    learning = sum(each.numel() for each in trained_parameters(model.network))
    copies = on_gpu + with_reference
    sizes = [each.numel() for each in model.network.parameters() if each.ndim > 1]
    packed = 0 if on_gpu else sum(n for n in sizes if n >= PACKED_FROM)
    computing = max(1, workers)
    held = model.parameters * copies + learning * (trains + workers) + packed * computing
    if not trains:
        return 4 * held + WORKING
    moments = max(moments_size(model.network, each) for each in optimizers or [OptimizerSettings()])
    return 4 * held + moments + passing * computing + WORKING


def pass_size(model: LocalModel, compute: ComputeSettings, longest: int = 0) -> int:
    """Bytes of one forward and backward pass over `compute.micro_tokens` tokens, in float32.

    Over a row of `longest` tokens, where that is more: rows are not divided.
    Kept for the way back are, a token and layer: the inputs of both norms, queries, keys and
    values, what attention makes of them, and both inputs of the gated product; or the layer's
    input alone, where the rest is computed again. Logits exist twice, before and after softmax.
    """
    decoder = Decoder(model.network)
    config: Any = unwrapped(model.network).config
    layers, width = len(decoder.blocks), decoder.embedding.shape[1]
    states = (2 * decoder.heads + 2 * decoder.key_heads) * decoder.head_size
    layer = 2 * width + states + 2 * config.intermediate_size
    kept = layers * width + layer if compute.gradient_checkpointing else layers * layer
    tokens = max(compute.micro_tokens, longest)
    logits = min(compute.logit_tokens, tokens) * len(decoder.embedding)
    return 4 * (tokens * kept + 2 * logits)


def caution(model: LocalModel, compute: ComputeSettings, limit: int, available: int) -> str:
    """A word on attempts of as many tokens as they may have, if they may not fit; else empty.

    `limit` is `agent.max_tokens`.
    """
    longest = min(limit, unwrapped(model.network).config.max_position_embeddings)
    needed = pass_size(model, compute, longest)
    if longest <= compute.micro_tokens or needed <= available:
        return ""
    return (
        f"an attempt may have {longest} tokens (agent.max_tokens = {limit}), and to learn from one "
        f"takes about {needed / 2**30:.1f} GiB, {available / 2**30:.1f} GiB are free: lower that, "
        "or set compute.gradient_checkpointing = true"
    )


def refuse_too_large(model: LocalModel, workers: int, needed: int, available: int) -> None:
    """Raise `RecipeError` when `model` with so many workers needs more than `available` bytes."""
    if needed > available:
        fewer = f", fewer than {workers} workers (compute.workers)" if workers else ""
        raise RecipeError(
            f"memory: a model of {model.parameters / 1e6:.1f}M parameters needs about "
            f"{needed / 2**30:.1f} GiB more, {available / 2**30:.1f} GiB are free; choose a "
            f"smaller model{fewer} or, to train it, lower compute.micro_tokens and "
            "compute.logit_tokens, set model.lora_rank, or free memory"
        )


def refuse_unbuildable(parameters: int, available: int) -> None:
    """Raise `RecipeError` when the weights alone of a model not made yet are too large."""
    needed = 4 * parameters + WORKING
    if needed > available:
        raise RecipeError(
            f"memory: a model of {parameters / 1e6:.1f}M parameters needs about "
            f"{needed / 2**30:.1f} GiB to be made, {available / 2**30:.1f} GiB are free; choose a "
            "smaller model (model.width, model.layers), or free memory"
        )
