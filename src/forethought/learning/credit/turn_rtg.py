"""Returns from each turn on, compared among those of the same turn number.

Not in a paper; it is the usual way of giving GRPO to attempts of different length. It pays later
turns less: see the method page. `turn_rloo` does not.
"""

from collections.abc import Hashable, Sequence

from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.credit.attempts import Attempt, Turns


def turn_rtg(
    attempts: Sequence[Attempt], discount: float, advantage: AdvantageSettings
) -> list[Turns]:
    """Each turn's return compared with those of its group's attempts that reached that turn.

    A turn that one attempt alone reached has no company, and gets what `singleton` says.
    """
    keys: list[tuple[Hashable, int, int]] = []
    returns: list[float] = []
    counts: list[int] = []
    for attempt in attempts:
        before = len(returns)
        for agent, mine in enumerate(attempt.returns(discount)):
            keys += [(attempt.group, agent, turn) for turn in range(len(mine))]
            returns += mine
        counts.append(len(returns) - before)
    flat = iter(group_advantages(returns, keys, advantage))
    return [tuple(next(flat) for _ in range(count)) for count in counts]
