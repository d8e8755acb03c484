"""Demonstrations that are never trained on: how well a model foretells them, and what follows.

Shapes: B rows, T positions, M trained tokens, C of them at a time, E width, V vocabulary, K kinds
of token.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Self, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor

from forethought.core.trajectory import Tokens
from forethought.learning.batch import Batch, pad
from forethought.learning.gradient import unheard
from forethought.learning.logprobs import Reading
from forethought.learning.precision import chosen_dtype
from forethought.learning.settings import ComputeSettings
from forethought.learning.token_kinds import KINDS, NOT_TRAINED, token_kinds
from forethought.policy.local.crew import Crew
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort, packed_hidden
from forethought.policy.local.replica import Port, Replica

HELD_OUT_LOSS = "held_out/loss"
RISES = 3
"""Measurements in a row that rise before it is said that a model learns by heart."""

Series = Sequence[tuple[int, float]]
"""Values of one number as (step, value), by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutWork:
    """One worker's rows, the kind of each token, and how to compute."""

    batch: Batch
    kinds_BT: Tensor
    compute: ComputeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Rows that are only measured, the kind of each of their tokens, and who computes."""

    batch: Batch
    kinds_BT: Tensor
    crew: Crew
    compute: ComputeSettings

    @classmethod
    def of(
        cls, rows: Sequence[Tokens], tokenizer: Tokenizer, crew: Crew, compute: ComputeSettings
    ) -> Self:
        """Rows whose tokens are told apart by what they spell."""
        batch = pad(rows, [0.0] * len(rows))
        kinds_BT = torch.full(batch.mask_BT.shape, NOT_TRAINED, dtype=torch.int8)
        for number, row in enumerate(rows):
            kinds_BT[number, : len(row)] = torch.tensor(token_kinds(row, tokenizer))
        return cls(batch=batch, kinds_BT=kinds_BT, crew=crew, compute=compute)

    async def measure(self) -> dict[str, float]:
        """Mean negative log-likelihood (nats, temperature 1) of the trained tokens, and the share
        of them that the model holds likeliest; of all tokens and of each kind that there is.
        """
        works = [
            HeldOutWork(
                batch=self.batch.take(rows), kinds_BT=self.kinds_BT[rows], compute=self.compute
            )
            for rows in self.batch.deal(self.crew.size)
        ]
        found: list[Tensor] = await self.crew.run(foretell, works, unheard)
        return _report(torch.stack(found).sum(0))


def foretell(replica: Replica, work: HeldOutWork, port: Port) -> Tensor:
    """The job: of each kind its tokens, their negative log-likelihood, and how many were
    likeliest, summed [K, 3]. Leaves no gradient.
    """
    device = replica.decoder.device
    dtype = chosen_dtype(work.compute.precision, device) or replica.decoder.embedding.dtype
    effort = Effort(arithmetic=Arithmetic(dtype=dtype))
    sums_K3 = torch.zeros(len(KINDS), 3, dtype=torch.float64)
    with torch.no_grad():
        for portion in work.batch.portions(work.compute.micro_tokens):
            port.heard()
            batch = work.batch.take(portion)
            kinds_BT = work.kinds_BT[portion][:, : batch.mask_BT.shape[1]]
            found_M2 = _foretold(replica, batch, effort, work.compute.logit_tokens)
            told_M3 = torch.cat([torch.ones(len(found_M2), 1), found_M2], 1).double()
            sums_K3.index_add_(0, kinds_BT[batch.mask_BT].long(), told_M3)
    return sums_K3


def _foretold(replica: Replica, batch: Batch, effort: Effort, logit_tokens: int) -> Tensor:
    """Negative log-likelihood of each trained token, and whether it is the likeliest [M, 2]."""
    reading = Reading.of(batch).to(replica.decoder.device)
    if not len(reading.targets_M):
        return torch.zeros(0, 2)
    hidden_ME = packed_hidden(replica.decoder, reading.packing, reading.before_M, effort)
    weight_VE = effort.arithmetic.weight(cast("Tensor", replica.decoder.head.weight))
    parts: list[Tensor] = []
    for hidden_CE, targets_C in zip(
        hidden_ME.split(logit_tokens), reading.targets_M.split(logit_tokens), strict=True
    ):
        logits_CV = (hidden_CE.to(weight_VE.dtype) @ weight_VE.t()).float()
        nll_C = torch.nn.functional.cross_entropy(logits_CV, targets_C, reduction="none")
        parts.append(torch.stack([nll_C, (logits_CV.argmax(-1) == targets_C).float()], 1))
    return torch.cat(parts).cpu()


def _report(sums_K3: Tensor) -> dict[str, float]:
    named = {"": sums_K3.sum(0)} | {f"/{kind}": sums_K3[n] for n, kind in enumerate(KINDS)}
    report: dict[str, float] = {}
    for name, (tokens, nll, right) in ((name, sums.tolist()) for name, sums in named.items()):
        if tokens:
            report[f"{HELD_OUT_LOSS}{name}"] = nll / tokens
            report[f"held_out/accuracy{name}"] = right / tokens
    return report


def best_first(losses: Series) -> list[int]:
    """The steps by their loss, the least first and the earliest of equals.

    >>> best_first([(9, 1.5), (19, 1.0), (29, float("nan")), (39, 1.0)])
    [19, 39, 9]
    """
    return [step for step, loss in sorted(losses, key=lambda at: at[1]) if math.isfinite(loss)]


def is_among_best(loss: float, earlier: Series, count: int) -> bool:
    """Whether fewer than `count` of the earlier losses are as low.

    >>> is_among_best(1.0, [(9, 1.5), (19, 1.0)], 1)
    False
    """
    return math.isfinite(loss) and sum(other <= loss for _, other in earlier) < count


def learns_by_heart(held_out: Series, train: Series) -> bool:
    """Whether held-out loss has just risen for the `RISES`-th time in a row, while the training
    loss between those measurements fell.

    >>> held_out = [(1, 1.0), (3, 1.1), (5, 1.2), (7, 1.3)]
    >>> learns_by_heart(held_out, [(step, 1.0 / (step + 1)) for step in range(8)])
    True
    """
    rises = [after > before for (_, before), (_, after) in pairwise(held_out)]
    if rises[-RISES:] != [True] * RISES or rises[-RISES - 1 : -RISES] == [True]:
        return False
    steps = [step for step, _ in held_out[-RISES - 1 :]]
    between = [
        fmean(loss for step, loss in train if first < step <= last)
        for first, last in pairwise(steps)
    ]
    return between[-1] < between[0]
