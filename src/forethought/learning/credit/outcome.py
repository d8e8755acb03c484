"""One advantage an attempt: its whole reward, compared within its group."""

from collections.abc import Sequence

from forethought.learning.advantage import WHITENED, AdvantageSettings, gdpo, group_advantages
from forethought.learning.credit.attempts import Attempt


def outcome(attempts: Sequence[Attempt], advantage: AdvantageSettings) -> list[float]:
    """The advantage of each attempt's total; `gdpo` compares each component of the reward."""
    if advantage.kind != "gdpo" or not attempts:
        return compare(attempts, [attempt.total for attempt in attempts], advantage)
    names = attempts[0].reward.components
    parts = [[attempt.reward.components[name] for attempt in attempts] for name in names]
    groups = [attempt.group for attempt in attempts]
    return gdpo(parts, groups, [float(attempt.trained_length) for attempt in attempts], advantage)


def compare(
    attempts: Sequence[Attempt], rewards: Sequence[float], advantage: AdvantageSettings
) -> list[float]:
    """The advantage of each attempt, had it earned this reward.

    A group's statistics are over all of its attempts; what whitens over the batch's tokens does so
    over those that are trained (2501.03262).
    """
    whitens = advantage.kind in WHITENED
    return group_advantages(
        rewards,
        [attempt.group for attempt in attempts],
        advantage,
        [float(each.trained_length if whitens else each.length) for each in attempts],
        [attempt.episode.right for attempt in attempts],
    )
