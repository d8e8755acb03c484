"""The gradient of one optimiser step, in portions that fit, on every worker of a crew.

Each worker takes some of the batch's rows and divides by the *whole* batch's denominators, so
that gradients add up to that of the undivided batch whatever the division.
"""

from dataclasses import dataclass

import torch

from forethought.learning.batch import Batch
from forethought.learning.logprobs import Reading, token_logprobs
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.result import Tally
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from forethought.policy.local.replica import Port, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientWork:
    """One worker's rows and how to treat them. `dtype` None is the weights' own number type."""

    batch: Batch
    denominators: Denominators
    objective: Objective
    temperature: float
    micro_tokens: int
    logit_tokens: int
    dtype: torch.dtype | None = None
    checkpointing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShare:
    """What one worker found: its part of the loss, and its tally (None without rows)."""

    loss: float
    tally: Tally | None


def accumulate(replica: Replica, work: GradientWork, port: Port) -> GradientShare:
    """The job: leave the gradient of these rows with the replica.

    It can be put away at every layer: whoever stops a run does not wait for the rest.
    """
    _clear(replica)
    arithmetic = Arithmetic(dtype=work.dtype or replica.decoder.embedding.dtype)
    effort = Effort(arithmetic=arithmetic, again=work.checkpointing, look=port.heard)
    loss, tally = 0.0, None
    for portion in work.batch.portions(work.micro_tokens):
        part = _backward(replica, work.batch.take(portion), work, effort)
        loss += part.loss
        tally = part.tally if tally is None or part.tally is None else tally + part.tally
    return GradientShare(loss=loss, tally=tally)


def _backward(replica: Replica, batch: Batch, work: GradientWork, effort: Effort) -> GradientShare:
    device = replica.decoder.device
    reading = Reading.of(batch).to(device)
    reference_BT = None
    if replica.reference is not None:
        with torch.no_grad():
            reference_BT = token_logprobs(
                replica.reference, reading, work.temperature, work.logit_tokens, effort
            )
    streams = Streams(
        mask_BT=reading.mask_BT,
        advantages_BT=batch.advantages_BT.to(device),
        old_logprobs_BT=batch.sampled_logprobs_BT.to(device),
        weights_BT=torch.ones_like(batch.advantages_BT, device=device),
        ref_logprobs_BT=reference_BT,
    )
    logprobs_BT = token_logprobs(
        replica.decoder, reading, work.temperature, work.logit_tokens, effort
    )
    result = work.objective(logprobs_BT, streams, work.denominators)
    result.loss.backward()
    return GradientShare(loss=float(result.loss.detach()), tally=result.tally)


def _clear(replica: Replica) -> None:
    """Begin with no gradient. A worker's are kept side by side in its shared row."""
    if replica.gradient_N is not None:
        replica.gradient_N.zero_()
    start = 0
    for parameter in replica.trained:
        stop = start + parameter.numel()
        parameter.grad = (
            None
            if replica.gradient_N is None
            else replica.gradient_N[start:stop].view_as(parameter)
        )
        start = stop
