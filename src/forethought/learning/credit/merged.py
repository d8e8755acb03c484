"""One advantage an attempt, of its outcome and a share of what its turns earned."""

import math
from collections.abc import Sequence

from forethought.learning.advantage import AdvantageSettings
from forethought.learning.credit.attempts import Attempt
from forethought.learning.credit.outcome import compare


def merged(
    attempts: Sequence[Attempt], advantage: AdvantageSettings, turn_weight: float
) -> list[float]:
    """Compare outcome + weight * (sum over turns): merged rewards of 2505.11821.

    With weight 1 this is the total, with 0 the outcome alone.
    """
    rewards = [
        attempt.last + turn_weight * math.fsum(attempt.reward.per_turn) for attempt in attempts
    ]
    return compare(attempts, rewards, advantage)
