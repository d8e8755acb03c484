"""Credit by a critic: values before the updates, then generalised advantages of every token.

Rewards come as a batch's advantages, one a turn, and stand at each turn's last policy token
(MT-PPO, 2505.11821, eq. 8-9); what each token loses by itself is beside them.

Shapes: B rows, T positions, N policy tokens of a whole round.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from forethought.learning.batch import Batch
from forethought.learning.credit.gae import at_turn_ends, gae, whiten


@dataclass(frozen=True, slots=True, kw_only=True)
class Criticised:
    """A round's batches with advantages and returns, and how much of the returns was foreseen.

    `explained` is 1 - Var(returns - values) / Var(returns); 0 where returns do not vary.
    """

    batches: tuple[Batch, ...]
    explained: float


def criticise(
    batches: Sequence[Batch],
    values_BT: Sequence[Tensor],
    discount: float,
    trace: float,
    penalties_BT: Sequence[Tensor] = (),
) -> Criticised:
    """Advantages whitened over the round, from turns' rewards and a critic's values.

    `penalties_BT` are rewards that tokens have one by one, where they do. What is not finite stays
    so, and moves nobody else's advantage.
    """
    rewards = [at_turn_ends(batch.advantages_BT, batch.turns_BT) for batch in batches]
    if penalties_BT:
        rewards = [ends + lost for ends, lost in zip(rewards, penalties_BT, strict=True)]
    raw = [
        gae(rewards_BT, values, batch.mask_BT, discount, trace)
        for rewards_BT, batch, values in zip(rewards, batches, values_BT, strict=True)
    ]
    masks = [batch.mask_BT for batch in batches]
    advantages_N = _joined([advantages for advantages, _ in raw], masks)
    known_N = torch.isfinite(advantages_N)
    white_N = whiten(advantages_N[None], known_N[None])[0]
    whitened = _parted(torch.where(known_N, white_N, advantages_N), masks)
    found = [
        replace(batch, advantages_BT=advantages, old_values_BT=values, returns_BT=returns)
        for batch, advantages, values, (_, returns) in zip(
            batches, whitened, values_BT, raw, strict=True
        )
    ]
    returns_N = _joined([returns for _, returns in raw], masks)
    left_N = returns_N - _joined(values_BT, masks)
    spread = float(returns_N.var(correction=0))
    explained = 1.0 - float(left_N.var(correction=0)) / spread if spread else 0.0
    return Criticised(batches=tuple(found), explained=explained)


def _joined(values_BT: Sequence[Tensor], masks_BT: Sequence[Tensor]) -> Tensor:
    return torch.cat([each[mask] for each, mask in zip(values_BT, masks_BT, strict=True)])


def _parted(values_N: Tensor, masks_BT: Sequence[Tensor]) -> list[Tensor]:
    counts = [int(mask_BT.sum()) for mask_BT in masks_BT]
    parts = values_N.split(counts)
    return [
        torch.zeros(mask_BT.shape).masked_scatter(mask_BT, part.to(torch.float32))
        for mask_BT, part in zip(masks_BT, parts, strict=True)
    ]
