"""The gradient of one optimiser step, in portions that fit, on every worker of a crew.

Each worker takes some of the batch's rows and divides by the *whole* batch's denominators, so
that gradients add up to that of the undivided batch whatever the division.
"""

from dataclasses import dataclass

import torch

from forethought.learning.batch import Batch
from forethought.learning.logprobs import token_logprobs
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.result import Tally
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.replica import Emit, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientWork:
    """One worker's rows and how to treat them."""

    batch: Batch
    rows: tuple[int, ...]
    denominators: Denominators
    objective: Objective
    temperature: float
    micro_tokens: int
    logit_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShare:
    """What one worker found: its part of the loss, and its tally (None without rows)."""

    loss: float
    tally: Tally | None


def accumulate(replica: Replica, work: GradientWork, emit: Emit) -> GradientShare:
    """The job: leave the gradient of these rows with the replica."""
    for parameter in replica.trained:
        parameter.grad = None
    mine = work.batch.take(work.rows)
    loss, tally = 0.0, None
    for portion in mine.portions(work.micro_tokens) if work.rows else []:
        part = _backward(replica, mine.take(portion), work)
        loss += part.loss
        tally = part.tally if tally is None or part.tally is None else tally + part.tally
    if replica.gradient_N is not None:
        _flatten(replica)
    return GradientShare(loss=loss, tally=tally)


def _backward(replica: Replica, batch: Batch, work: GradientWork) -> GradientShare:
    device = replica.decoder.device
    ids_BT, mask_BT = batch.ids_BT.to(device), batch.mask_BT.to(device)

    reference_BT = None
    if replica.reference is not None:
        with torch.no_grad():
            reference_BT = token_logprobs(
                replica.reference, ids_BT, mask_BT, work.temperature, work.logit_tokens
            )
    streams = Streams(
        mask_BT=mask_BT,
        advantages_BT=batch.advantages_BT.to(device),
        old_logprobs_BT=batch.sampled_logprobs_BT.to(device),
        weights_BT=torch.ones_like(batch.advantages_BT, device=device),
        ref_logprobs_BT=reference_BT,
    )
    logprobs_BT = token_logprobs(
        replica.decoder, ids_BT, mask_BT, work.temperature, work.logit_tokens
    )
    result = work.objective(logprobs_BT, streams, work.denominators)
    result.loss.backward()
    return GradientShare(loss=float(result.loss.detach()), tally=result.tally)


def _flatten(replica: Replica) -> None:
    """Write the parameters' gradients side by side into the worker's shared row."""
    if replica.gradient_N is None:
        return
    start = 0
    for parameter in replica.trained:
        stop = start + parameter.numel()
        if parameter.grad is None:
            replica.gradient_N[start:stop] = 0
        else:
            replica.gradient_N[start:stop] = parameter.grad.flatten()
        start = stop
