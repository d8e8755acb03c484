"""Log-probabilities of given tokens and entropies beside them, without the logits of a whole batch.

Rows are laid without padding and with what they begin with alike once (`policy.local.packing`);
only what a trained token follows reaches the output head.

Shapes: B rows, T positions, M trained tokens, E width, V vocabulary.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from forethought.learning.batch import Batch
from forethought.learning.losses.entropy import entropy
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic, add_gradient
from forethought.policy.local.packed import Effort, packed_hidden
from forethought.policy.local.packing import Packing, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is to be read of some rows: where they lie, and the trained tokens.

    `before_M` is the place of the token before each trained one, `targets_M` its id.
    """

    packing: Packing
    before_M: Tensor
    targets_M: Tensor
    mask_BT: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "Reading":
        """All that has to be read for the trained tokens of a batch."""
        packing = pack(batch.needed())
        trained_BT = batch.mask_BT[:, 1:]
        before_BT = torch.zeros_like(batch.ids_BT[:, 1:])
        before_BT[:, : packing.place_BT.shape[1]] = packing.place_BT
        return cls(
            packing=packing,
            before_M=before_BT[trained_BT],
            targets_M=batch.ids_BT[:, 1:][trained_BT],
            mask_BT=batch.mask_BT,
        )

    def to(self, device: torch.device) -> "Reading":
        """The same with its tensors on a device."""
        return Reading(
            packing=self.packing.to(device),
            before_M=self.before_M.to(device),
            targets_M=self.targets_M.to(device),
            mask_BT=self.mask_BT.to(device),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a model gives to the trained tokens of rows: differentiable [B, T], 0 elsewhere.

    `logprobs_BT` holds log pi(id_t | id_<t); `entropies_BT` the entropy of all that could have
    stood there, in nats, where it was asked for; `values_BT` what a critic's head says of the
    tokens before, where there is one.
    """

    logprobs_BT: Tensor
    entropies_BT: Tensor | None = None
    values_BT: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How logits become probabilities: at which temperature, for how many tokens at once.

    With `entropies` they are made too. See `ChosenLogprobs` for `logit_tokens`.
    """

    temperature: float
    logit_tokens: int
    entropies: bool = False


def token_outlook(
    decoder: Decoder,
    reading: Reading,
    scale: Scale,
    effort: Effort,
    value_head: nn.Linear | None = None,
) -> Outlook:
    """What `decoder` gives to the trained tokens of a reading; natural logarithm.

    Evaluated at the temperature, over the full vocabulary, in float32 (or the model's own number
    type, if that is wider).
    """
    shape, device = reading.mask_BT.shape, decoder.device
    zeros_BT = torch.zeros(shape, dtype=decoder.embedding.dtype, device=device)
    if not len(reading.targets_M):
        empty_BT = zeros_BT.requires_grad_()
        return Outlook(
            logprobs_BT=empty_BT,
            entropies_BT=empty_BT if scale.entropies else None,
            values_BT=None if value_head is None else empty_BT,
        )
    hidden_ME = packed_hidden(decoder, reading.packing, reading.before_M, effort)
    logprobs_M, entropies_M = ChosenLogprobs.apply(
        hidden_ME, decoder.head.weight, reading.targets_M, scale, effort
    )

    def laid(values_M: Tensor) -> Tensor:
        return zeros_BT.masked_scatter(reading.mask_BT, values_M)

    return Outlook(
        logprobs_BT=laid(logprobs_M),
        entropies_BT=laid(entropies_M) if scale.entropies else None,
        values_BT=None if value_head is None else laid(value_head(hidden_ME)[:, 0]),
    )


def token_logprobs(
    decoder: Decoder, reading: Reading, temperature: float, logit_tokens: int, effort: Effort
) -> Tensor:
    """The log-probabilities alone [B, T]; see `token_outlook`."""
    scale = Scale(temperature=temperature, logit_tokens=logit_tokens)
    return token_outlook(decoder, reading, scale, effort).logprobs_BT


class ChosenLogprobs(torch.autograd.Function):
    """The output head and the log-softmax of it, at one id a token; and entropies, if asked.

    Logits exist for `logit_tokens` tokens at a time. Where that is all of them, what follows from
    them is kept for the way back; otherwise they are computed again, portion by portion.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ME: Tensor,
        weight_VE: Tensor,
        targets_M: Tensor,
        scale: Scale,
        effort: Effort,
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities [M] and entropies [M] (0 unless asked), typed as `hidden_ME`."""
        head = _Head(weight_VE, effort.arithmetic, scale.temperature)
        kept: Tensor | None = None
        parts: list[Tensor] = []
        entropies_M = torch.zeros_like(hidden_ME[:, 0])
        for rows in _portions(len(targets_M), scale.logit_tokens):
            effort.look()
            logprobs_CV = head.logprobs(hidden_ME[rows])
            parts.append(logprobs_CV.gather(1, targets_M[rows, None])[:, 0])
            if scale.entropies:
                entropies_M[rows] = entropy(logprobs_CV)
            kept = logprobs_CV if len(logprobs_CV) == len(targets_M) else None
        ctx.save_for_backward(hidden_ME, targets_M)
        ctx.head, ctx.kept, ctx.scale, ctx.look = head, kept, scale, effort.look
        return torch.cat(parts), entropies_M

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the hidden states and of the weight."""
        hidden_ME, targets_M = ctx.saved_tensors
        head: _Head = ctx.head
        of_hidden_ME = torch.empty_like(hidden_ME)
        of_weight: Tensor | None = None
        for rows in _portions(len(targets_M), ctx.scale.logit_tokens):
            ctx.look()
            kept, ctx.kept = ctx.kept, None
            logprobs_CV = head.logprobs(hidden_ME[rows]) if kept is None else kept
            wanted = _Wanted(
                targets_C=targets_M[rows],
                of_chosen_C=gradients[0][rows],
                of_entropies_C=gradients[1][rows] if ctx.scale.entropies else None,
            )
            of_hidden_ME[rows], of_part = head.gradients(logprobs_CV, wanted, hidden_ME[rows])
            of_weight = of_part if of_weight is None or of_part is None else of_weight + of_part
        return of_hidden_ME, of_weight, None, None, None


def _portions(tokens: int, size: int) -> Iterator[slice]:
    for start in range(0, tokens, size):
        yield slice(start, min(start + size, tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The gradients of what a head gave to some tokens."""

    targets_C: Tensor
    of_chosen_C: Tensor
    of_entropies_C: Tensor | None


@dataclass(frozen=True, slots=True)
class _Head:
    """The output head as it is multiplied with."""

    weight_VE: Tensor
    arithmetic: Arithmetic
    temperature: float

    def logprobs(self, hidden_CE: Tensor) -> Tensor:
        """log-softmax of the logits [C, V]."""
        used = self.arithmetic.weight(self.weight_VE)
        logits_CV = (hidden_CE.to(used.dtype) @ used.t()).to(hidden_CE.dtype)
        if self.temperature != 1.0:
            logits_CV.div_(self.temperature)
        return torch.log_softmax(logits_CV, -1)

    def gradients(
        self, logprobs_CV: Tensor, wanted: _Wanted, hidden_CE: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of hidden states and weight; writes over `logprobs_CV`."""
        used = self.arithmetic.weight(self.weight_VE)
        of_logits_CV = self._of_logits(logprobs_CV, wanted).to(used.dtype)
        of_weight = add_gradient(self.weight_VE, of_logits_CV, hidden_CE.to(used.dtype))
        return (of_logits_CV @ used).to(hidden_CE.dtype), of_weight

    def _of_logits(self, logprobs_CV: Tensor, wanted: _Wanted) -> Tensor:
        scaled_C1 = (wanted.of_chosen_C / self.temperature)[:, None]
        if wanted.of_entropies_C is None:
            of_logits_CV = logprobs_CV.exp_().mul_(-scaled_C1)
        else:
            # The entropy falls by p (log p + H) as a logit rises.
            falls_C1 = (wanted.of_entropies_C / self.temperature)[:, None]
            slopes_CV = (logprobs_CV + entropy(logprobs_CV)[:, None]).mul_(falls_C1)
            of_logits_CV = logprobs_CV.exp_().mul_(-scaled_C1 - slopes_CV)
        return of_logits_CV.scatter_add_(1, wanted.targets_C[:, None], scaled_C1)
