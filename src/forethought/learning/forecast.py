"""What the weights as they are give to a batch, before an update changes them.

The rows are read in the portions in which a gradient reads them, so that the same weights give
the same numbers there, to the bit.

Shapes: B rows, T positions.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from forethought.learning.batch import Batch
from forethought.learning.logprobs import Reading, Scale, token_outlook
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from forethought.policy.local.replica import Port, Replica

Source = Literal["policy", "reference", "critic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastWork:
    """One worker's rows, and what to ask for. `dtype` None is the weights' own number type.

    `of` the policy or of the reference that it began as: log-probabilities; of the critic: values.
    """

    batch: Batch
    scale: Scale
    micro_tokens: int
    dtype: torch.dtype | None = None
    of: Source = "policy"


@torch.no_grad()
def forecast(replica: Replica, work: ForecastWork, port: Port) -> Tensor:
    """The job: one number [B, T] at each trained token, 0 elsewhere.

    Raises ValueError without a reference, or a critic, to ask.
    """
    decoder = replica.reference if work.of == "reference" else replica.decoder
    head = replica.value_head if work.of == "critic" else None
    if decoder is None or (work.of == "critic" and head is None):
        raise ValueError(f"there is no {work.of} here: start the engine with one")
    effort = Effort(
        arithmetic=Arithmetic(dtype=work.dtype or decoder.embedding.dtype), look=port.heard
    )
    found_BT = torch.zeros(work.batch.ids_BT.shape, dtype=decoder.embedding.dtype)
    for portion in work.batch.portions(work.micro_tokens):
        reading = Reading.of(work.batch.take(portion)).to(decoder.device)
        outlook = token_outlook(decoder, reading, work.scale, effort, head)
        part_BT = outlook.logprobs_BT if outlook.values_BT is None else outlook.values_BT
        found_BT[portion, : part_BT.shape[1]] = part_BT.to(found_BT.device)
    return found_BT
