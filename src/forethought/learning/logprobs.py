"""Log-probabilities of given tokens, without ever holding the logits of a whole batch.

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
from torch import Tensor

from forethought.learning.batch import Batch
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


def token_logprobs(
    decoder: Decoder, reading: Reading, temperature: float, logit_tokens: int, effort: Effort
) -> Tensor:
    """log pi(id_t | id_<t) [B, T] at the trained tokens, 0 elsewhere; natural logarithm.

    Evaluated at `temperature`, over the full vocabulary, in float32 (or the model's own number
    type, if that is wider). See `ChosenLogprobs` for `logit_tokens`.
    """
    shape, device = reading.mask_BT.shape, decoder.device
    dtype = decoder.embedding.dtype
    if not len(reading.targets_M):
        return torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
    hidden_ME = packed_hidden(decoder, reading.packing, reading.before_M, effort)
    logprobs_M = ChosenLogprobs.apply(
        hidden_ME,
        decoder.head.weight,
        reading.targets_M,
        temperature,
        logit_tokens,
        effort.arithmetic,
    )
    zeros_BT = torch.zeros(shape, dtype=dtype, device=device)
    return zeros_BT.masked_scatter(reading.mask_BT, logprobs_M)


class ChosenLogprobs(torch.autograd.Function):
    """The output head and the log-softmax of it, at one id a token.

    Logits exist for `logit_tokens` tokens at a time. Where that is all of them, what follows from
    them is kept for the way back; otherwise they are computed again, portion by portion.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ME: Tensor,
        weight_VE: Tensor,
        targets_M: Tensor,
        temperature: float,
        logit_tokens: int,
        arithmetic: Arithmetic,
    ) -> Tensor:
        """Log-probabilities [M], in the number type of `hidden_ME`."""
        head = _Head(weight_VE, arithmetic, temperature)
        kept: Tensor | None = None
        parts: list[Tensor] = []
        for rows in _portions(len(targets_M), logit_tokens):
            logprobs_CV = head.logprobs(hidden_ME[rows])
            parts.append(logprobs_CV.gather(1, targets_M[rows, None])[:, 0])
            kept = logprobs_CV if len(logprobs_CV) == len(targets_M) else None
        ctx.save_for_backward(hidden_ME, targets_M)
        ctx.head, ctx.kept, ctx.logit_tokens = head, kept, logit_tokens
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the hidden states and of the weight."""
        hidden_ME, targets_M = ctx.saved_tensors
        head: _Head = ctx.head
        of_hidden_ME = torch.empty_like(hidden_ME)
        of_weight: Tensor | None = None
        for rows in _portions(len(targets_M), ctx.logit_tokens):
            kept, ctx.kept = ctx.kept, None
            logprobs_CV = head.logprobs(hidden_ME[rows]) if kept is None else kept
            of_hidden_ME[rows], of_part = head.gradients(
                logprobs_CV, gradients[0][rows], targets_M[rows], hidden_ME[rows]
            )
            of_weight = of_part if of_weight is None or of_part is None else of_weight + of_part
        return of_hidden_ME, of_weight, None, None, None, None


def _portions(tokens: int, size: int) -> Iterator[slice]:
    for start in range(0, tokens, size):
        yield slice(start, min(start + size, tokens))


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
        self, logprobs_CV: Tensor, of_chosen_C: Tensor, targets_C: Tensor, hidden_CE: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of hidden states and weight; writes over `logprobs_CV`."""
        used = self.arithmetic.weight(self.weight_VE)
        scaled_C1 = (of_chosen_C / self.temperature)[:, None]
        of_logits_CV = logprobs_CV.exp_().mul_(-scaled_C1)
        of_logits_CV.scatter_add_(1, targets_C[:, None], scaled_C1)
        of_logits_CV = of_logits_CV.to(used.dtype)
        of_weight = add_gradient(self.weight_VE, of_logits_CV, hidden_CE.to(used.dtype))
        return (of_logits_CV @ used).to(hidden_CE.dtype), of_weight
