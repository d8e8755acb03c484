"""How far attempts went from the model as it was at first: the KL penalty of a reward.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence

from torch import Tensor

from forethought.core.trajectory import Episode, Group, Tokens
from forethought.learning.batch import Batch, numbered_turns, pad
from forethought.learning.learner import ComparingLearner
from forethought.learning.losses.kl import reward_penalty
from forethought.learning.rewards.calls import turns_of


async def divergences(
    groups: Sequence[Group], learner: ComparingLearner
) -> dict[str, tuple[float, ...]]:
    """Nats by episode, one number a turn, trajectory after trajectory.

    Each is the sum over the turn's policy tokens of log pi - log pi_ref, as sampled (k1): of either
    sign, while the mean over attempts of what their turns come to is the KL divergence.
    """
    episodes = [episode for group in groups for episode in group.measured]
    found = {episode.id: [0.0] * len(turns_of(episode)) for episode in episodes}
    rows = [(episode.id, *row) for episode in episodes for row in _rows(episode)]
    if rows:
        batch = pad([segment for _, segment, _ in rows], [0.0] * len(rows))
        lost_BT = await token_penalties(batch, learner, 1.0)
        for (name, segment, turns), lost in zip(rows, lost_BT.double().tolist(), strict=True):
            for turn, nats, sampled in zip(turns, lost, segment.sampled, strict=False):
                if sampled:
                    found[name][turn] -= nats
    return {name: tuple(nats) for name, nats in found.items()}


async def token_penalties(batch: Batch, learner: ComparingLearner, coefficient: float) -> Tensor:
    """What each policy token of a batch loses, below 0 where the reference likes it less [B, T]."""
    ref_BT = await learner.forecast(batch, range(len(batch.ids_BT)), "reference")
    return reward_penalty(batch.sampled_logprobs_BT, ref_BT, batch.mask_BT, coefficient)


def _rows(episode: Episode) -> Iterator[tuple[Tokens, list[int]]]:
    """The segments in which something was predicted, with each token's turn of the episode."""
    first = 0
    for trajectory in episode.trajectories:
        numbers = numbered_turns(episode, trajectory)
        for segment, turns in zip(trajectory.segments, numbers, strict=True):
            if any(segment.sampled[1:]):
                yield segment, [first + turn for turn in turns]
        first += len(trajectory.turns)
