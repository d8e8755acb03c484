"""Returns from each turn on, less what the *other* attempts of the group say of them.

The baseline of a turn is a function of other attempts, and of what this one earned before it. Both
are independent of what is said in the turn, so the expected gradient is exactly that of the
expected reward, whatever decides how many turns there are (RLOO, 2402.14740, a turn at a time). A
turn's reward must be settled when the turn ends. Dividing by a deviation, or comparing with a mean
that holds the attempt itself, would break this.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from forethought.learning.advantage import varies
from forethought.learning.credit.attempts import Attempt, Turns

Baseline = Literal["reached", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One attempt: its total, and for each turn its return and what its agent had earned before.

    Turns are named by agent and number.

    >>> Played(total=1.5, returns={"0": 1.5, "1": 1.0}, before={"0": 0.0, "1": 0.5}).total
    1.5
    """

    total: float
    returns: Mapping[Hashable, float]
    before: Mapping[Hashable, float]


def turn_rloo(attempts: Sequence[Attempt], discount: float, baseline: Baseline) -> list[Turns]:
    """The advantage of each turn; 0 for an attempt that is alone in its group."""
    played = [_played(attempt, discount) for attempt in attempts]
    members: dict[Hashable, list[int]] = {}
    for place, attempt in enumerate(attempts):
        members.setdefault(attempt.group, []).append(place)
    found: list[Turns] = [()] * len(attempts)
    for places in members.values():
        for place in places:
            others = [played[other] for other in places if other != place]
            found[place] = tuple(advantages(played[place], others, baseline))
    return found


def advantages(mine: Played, others: Sequence[Played], baseline: Baseline) -> Iterator[float]:
    """Return - baseline for each turn; `reached` and `all` name the two baselines.

    Exactly 0 where the return and those whose mean is the baseline do not vary.
    """
    for turn, earned in mine.returns.items():
        if not others:
            compared = []
        elif baseline == "all":
            compared = returns_of_all(turn, others)
        else:
            compared = returns_of_reached(turn, others, mine.before[turn])
        yield earned - fmean(compared) if varies([earned, *compared]) else 0.0


def returns_of_all(turn: Hashable, others: Sequence[Played]) -> list[float]:
    """The returns of all others from that turn on: 0 is left for one that has ended."""
    return [each.returns.get(turn, 0.0) for each in others]


def returns_of_reached(turn: Hashable, others: Sequence[Played], before: float) -> list[float]:
    """The returns of the others that reached the turn, and of one more that is made up.

    What is made up is what would be left for this attempt if it came to as much as the others did
    on average: their mean total less what its agent had earned `before`. It stands in where nobody
    else reached the turn, and steadies the mean of few.
    """
    reached = [each.returns[turn] for each in others if turn in each.returns]
    return [*reached, fmean(each.total for each in others) - before]


def _played(attempt: Attempt, discount: float) -> Played:
    returns: dict[Hashable, float] = {}
    before: dict[Hashable, float] = {}
    for agent, (mine, earned) in enumerate(
        zip(attempt.returns(discount), attempt.agents, strict=True)
    ):
        sofar = 0.0
        for turn, (following, reward) in enumerate(zip(mine, earned, strict=True)):
            returns[agent, turn], before[agent, turn] = following, sofar
            sofar += reward
    return Played(total=attempt.total, returns=returns, before=before)
