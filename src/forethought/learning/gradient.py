"""The gradient of one optimiser step, in portions that fit, on every worker of a crew.

Each worker takes some of the batch's rows and divides by the *whole* batch's denominators, so
that gradients add up to that of the undivided batch whatever the division.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Tensor

from forethought.learning.batch import Batch
from forethought.learning.credit.gae import value_loss
from forethought.learning.logprobs import Outlook, Reading, Scale, token_logprobs, token_outlook
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.entropy import entropy_bonus
from forethought.learning.losses.result import Tally
from forethought.learning.losses.settings import AggregationName
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from forethought.policy.local.replica import Port, Replica

NAMED = 4
"""Attempts that a warning names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropyTerm:
    """How much entropy is worth beside a loss, and how that of tokens becomes one number."""

    coefficient: float
    aggregation: AggregationName


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticTerm:
    """How much a critic's loss counts beside the policy's; values are clipped at `clip`."""

    coefficient: float
    clip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientWork:
    """One worker's rows and how to treat them. `dtype` None is the weights' own number type.

    The gradient that is left is `loss_scale` times as large as the loss's.
    """

    batch: Batch
    denominators: Denominators
    objective: Objective
    temperature: float
    micro_tokens: int
    logit_tokens: int
    dtype: torch.dtype | None = None
    loss_scale: float = 1.0
    checkpointing: bool = False
    entropy: EntropyTerm | None = None
    critic: CriticTerm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientShare:
    """What one worker found: its part of the loss, and its tally (None without rows).

    `broken` names the attempts with a number that is not finite, where loss or gradient is not.
    """

    loss: float
    tally: Tally | None
    broken: tuple[str, ...] = ()

    @property
    def whose(self) -> str:
        """In words, whose numbers are not finite.

        >>> GradientShare(loss=math.nan, tally=None, broken=("e/3", "e/3")).whose
        'not finite: e/3'
        """
        names = list(dict.fromkeys(self.broken))
        if not names:
            return "no single attempt could be told"
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"not finite: {', '.join(names[:NAMED])}{more}"

    def __add__(self, other: "GradientShare") -> "GradientShare":
        tallies = [each.tally for each in (self, other) if each.tally is not None]
        return GradientShare(
            loss=self.loss + other.loss,
            tally=reduce(add, tallies) if tallies else None,
            broken=self.broken + other.broken,
        )


NO_SHARE = GradientShare(loss=0.0, tally=None)


def unheard(worker: int, value: object) -> None:
    """What becomes of a value that a job emits, of a job that emits none."""


def accumulate(replica: Replica, work: GradientWork, port: Port) -> GradientShare:
    """The job: leave the gradient of these rows with the replica.

    It can be put away at every layer: whoever stops a run does not wait for the rest.
    """
    _clear(replica)
    arithmetic = Arithmetic(dtype=work.dtype or replica.decoder.embedding.dtype)
    effort = Effort(arithmetic=arithmetic, again=work.checkpointing, look=port.heard)
    portions = work.batch.portions(work.micro_tokens)
    parts = (_backward(replica, work.batch.take(each), work, effort) for each in portions)
    return reduce(add, parts, NO_SHARE)


def _backward(replica: Replica, batch: Batch, work: GradientWork, effort: Effort) -> GradientShare:
    device = replica.decoder.device
    reading = Reading.of(batch).to(device)
    reference_BT = None
    if replica.reference is not None:
        with torch.no_grad():
            reference_BT = token_logprobs(
                replica.reference, reading, work.temperature, work.logit_tokens, effort
            )
    streams = _streams(batch, reading, reference_BT)
    scale = Scale(
        temperature=work.temperature,
        logit_tokens=work.logit_tokens,
        entropies=work.entropy is not None,
    )
    head = None if work.critic is None else replica.value_head
    outlook = token_outlook(replica.decoder, reading, scale, effort, head)
    for output_BT in _outputs(outlook):
        output_BT.retain_grad()
    result = work.objective(outlook.logprobs_BT, streams, work.denominators)
    loss = result.loss
    if work.entropy is not None and outlook.entropies_BT is not None:
        loss = loss + entropy_bonus(
            outlook.entropies_BT,
            reading.mask_BT,
            work.denominators,
            aggregation=work.entropy.aggregation,
            coefficient=work.entropy.coefficient,
        )
    if work.critic is not None and outlook.values_BT is not None:
        loss = loss + _critic_loss(outlook.values_BT, batch, work, work.critic)
    (loss * work.loss_scale).backward()
    found = float(loss.detach())
    broken = _broken(batch, streams, outlook, found)
    return GradientShare(loss=found, tally=result.tally, broken=broken)


def _critic_loss(values_BT: Tensor, batch: Batch, work: GradientWork, critic: CriticTerm) -> Tensor:
    """The critic's share of the whole step's loss: its mean is over all policy tokens of that."""
    if batch.old_values_BT is None or batch.returns_BT is None:
        raise ValueError("a critic's loss needs old_values_BT and returns_BT, and has neither")
    device = values_BT.device
    mask_BT = batch.mask_BT.to(device)
    mean = value_loss(
        values_BT,
        batch.old_values_BT.to(device),
        batch.returns_BT.to(device),
        mask_BT,
        critic.clip,
    )
    return critic.coefficient * mean * (mask_BT.sum() / max(1.0, work.denominators.tokens))


def _streams(batch: Batch, reading: Reading, reference_BT: Tensor | None) -> Streams:
    """A batch as a loss sees it, where the reading is."""
    device = reading.mask_BT.device
    old_BT = batch.old_logprobs_BT
    weights_BT = batch.weights_BT
    return Streams(
        mask_BT=reading.mask_BT,
        advantages_BT=batch.advantages_BT.to(device),
        old_logprobs_BT=(batch.sampled_logprobs_BT if old_BT is None else old_BT).to(device),
        weights_BT=(torch.ones_like(batch.advantages_BT) if weights_BT is None else weights_BT).to(
            device
        ),
        ref_logprobs_BT=reference_BT,
        turns_BT=batch.turns_BT.to(device),
    )


def _outputs(outlook: Outlook) -> Iterator[Tensor]:
    """What a loss may be a function of."""
    for output_BT in (outlook.logprobs_BT, outlook.entropies_BT, outlook.values_BT):
        if output_BT is not None:
            yield output_BT


def _broken(batch: Batch, streams: Streams, outlook: Outlook, loss: float) -> tuple[str, ...]:
    """The attempts with a number that is not finite at a trained token.

    Nobody where the loss and its gradient in what the model gave are finite: what then becomes of
    the gradient inside the model is no single attempt's doing.
    """
    slopes = [output_BT.grad for output_BT in _outputs(outlook) if output_BT.grad is not None]
    if math.isfinite(loss) and all(bool(torch.isfinite(each).all()) for each in slopes):
        return ()
    told = (
        *(streams.advantages_BT, streams.old_logprobs_BT, streams.weights_BT),
        *(streams.ref_logprobs_BT, batch.old_values_BT, batch.returns_BT),
    )
    numbers = [*slopes, *(each.detach() for each in _outputs(outlook))]
    numbers += [each.to(streams.mask_BT.device) for each in told if each is not None]
    broken_B = torch.stack([~torch.isfinite(streams.kept(each)) for each in numbers]).any(0).any(1)
    rows: list[int] = broken_B.nonzero()[:, 0].tolist()
    return tuple(batch.names[row] for row in rows) if batch.names else ()


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
