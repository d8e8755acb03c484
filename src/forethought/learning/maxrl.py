"""MaxRL's advantage (2602.02710). Not offered to recipes: it divides by the mean reward, and every
reward that a recipe can ask for goes below 0."""

import math
from collections.abc import Sequence


def maxrl(rewards: Sequence[float]) -> list[float]:
    """(R - mean) / mean of one group: rare successes count for more. 0 where nothing was earned.

    Raises ValueError for a negative reward: the mean must be a rate of success.

    >>> maxrl([1.0, 0.0, 0.0, 0.0])
    [3.0, -1.0, -1.0, -1.0]
    """
    if any(reward < 0 for reward in rewards):
        raise ValueError(
            f"maxrl divides by the mean reward, got a reward of {min(rewards)}: "
            "give it rewards of 0 or more"
        )
    earned = math.fsum(rewards)
    if not earned:
        return [0.0] * len(rewards)
    mean = earned / len(rewards)
    return [(reward - mean) / mean for reward in rewards]
