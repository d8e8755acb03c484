"""One advantage an attempt: its whole reward, compared within its group."""

from collections.abc import Sequence

from forethought.learning.advantage import AdvantageSettings, gdpo, group_advantages
from forethought.learning.credit.attempts import Attempt


def outcome(attempts: Sequence[Attempt], advantage: AdvantageSettings) -> list[float]:
    """The advantage of each attempt's total; `gdpo` compares each component of the reward."""
    groups = [attempt.group for attempt in attempts]
    lengths = [float(attempt.length) for attempt in attempts]
    if advantage.kind == "gdpo" and attempts:
        names = attempts[0].reward.components
        parts = [[attempt.reward.components[name] for attempt in attempts] for name in names]
        return gdpo(parts, groups, lengths, advantage)
    totals = [attempt.total for attempt in attempts]
    right = [attempt.episode.right for attempt in attempts]
    return group_advantages(totals, groups, advantage, lengths, right)
