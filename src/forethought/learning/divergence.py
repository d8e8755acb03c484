"""How far attempts went from the model as it was at first: the KL penalty of a reward.

Shapes: B rows, T positions.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from dataclasses import replace

from forethought.core.trajectory import Group
from forethought.learning.batch import pad
from forethought.learning.learner import ComparingLearner
from forethought.learning.losses.kl import reward_penalty


async def divergences(groups: Sequence[Group], learner: ComparingLearner) -> dict[str, float]:
    """Nats by episode: the sum over its policy tokens of log pi - log pi_ref, as sampled (k1).

    A sum of either sign, whose mean over attempts is the KL divergence of whole attempts.
    """
    rows = [
        (episode.id, segment)
        for group in groups
        for episode in group.measured
        for trajectory in episode.trajectories
        for segment in trajectory.segments
        if any(segment.sampled[1:])
    ]
    if not rows:
        return {}
    batch = replace(
        pad([segment for _, segment in rows], [0.0] * len(rows)),
        names=tuple(name for name, _ in rows),
    )
    ref_BT = await learner.forecast(batch, range(len(rows)), "reference")
    lost_BT = reward_penalty(batch.sampled_logprobs_BT, ref_BT, batch.mask_BT, 1.0)
    found: dict[str, float] = {}
    for name, lost in zip(batch.names, lost_BT.double().sum(1).tolist(), strict=True):
        found[name] = found.get(name, 0.0) - lost
    return found
