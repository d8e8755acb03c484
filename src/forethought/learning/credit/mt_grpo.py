"""Turn-level GRPO for attempts with equally many turns (MT-GRPO, 2505.11821).

Each intermediate reward is compared at its turn, the outcome over the group. That is sound only
where every attempt has that turn: to subtract the mean of those that went on would refund to each
of them what a turn costs on average.
"""

import math
from collections.abc import Hashable, Sequence

from forethought.core.errors import RecipeError
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.credit.attempts import Attempt, Turns
from forethought.learning.credit.settings import CreditSettings


def mt_grpo(attempts: Sequence[Attempt], credit: CreditSettings) -> list[Turns]:
    """The advantage of each turn, as printed or as released.

    Raises `RecipeError` where attempts of a group differ in how many turns they have (as printed),
    or where one has more than two (as released).
    """
    groups, advantage = [attempt.group for attempt in attempts], credit.advantage
    rewards = [_only_agent(attempt) for attempt in attempts]
    outcomes = [attempt.last for attempt in attempts]
    if credit.form == "released":
        return _released(rewards, outcomes, groups, credit.turn_weight, advantage)
    _refuse_unequal(attempts, rewards)
    ends = [
        last + (turns[-1] if turns else 0.0) for turns, last in zip(rewards, outcomes, strict=True)
    ]
    of_outcome = group_advantages(ends, groups, advantage)
    of_turns = compare_turns([turns[:-1] for turns in rewards], groups, advantage)
    return [
        k_turn(turns, last, credit.decay) if mine else ()
        for turns, last, mine in zip(of_turns, of_outcome, rewards, strict=True)
    ]


def compare_turns(
    rewards: Sequence[Sequence[float]], groups: Sequence[Hashable], advantage: AdvantageSettings
) -> list[Turns]:
    """A^I: each turn's reward compared with those of the same turn in the group."""
    keys = [
        (group, turn)
        for group, mine in zip(groups, rewards, strict=True)
        for turn in range(len(mine))
    ]
    flat = iter(group_advantages([each for mine in rewards for each in mine], keys, advantage))
    return [tuple(next(flat) for _ in mine) for mine in rewards]


def k_turn(of_turns: Sequence[float], of_outcome: float, discount: float) -> Turns:
    """A_k = sum over l >= k of discount^(l-k) A^I_l, and the outcome's after them (equation 12).

    With one intermediate turn these are equations 5 and 6.

    >>> k_turn([1.0], 2.0, 0.5)
    (2.0, 2.0)
    """
    found = [of_outcome]
    for each in reversed(of_turns):
        found.append(each + discount * found[-1])
    return tuple(reversed(found))


def released(
    of_turn: float, of_outcome: float, of_sum: float, *, turns: int, weight: float
) -> Turns:
    """As in the authors' code: the weight is the first turn's, and one turn alone gets the sum's.

    >>> released(1.0, 2.0, 1.5, turns=2, weight=0.5)
    (2.5, 2.0)
    """
    return (of_outcome + weight * of_turn, of_outcome) if turns == 2 else (of_sum,) * turns


def _released(
    rewards: Sequence[Turns],
    outcomes: Sequence[float],
    groups: Sequence[Hashable],
    weight: float,
    advantage: AdvantageSettings,
) -> list[Turns]:
    """An attempt that made no call has earned nothing in between, which counts as 0."""
    longest = max(map(len, rewards), default=0)
    if longest > 2:
        raise RecipeError(
            f'rl.credit.form = "released": an attempt has {longest} turns, and that form knows '
            'two, a call and an answer; set agent.max_turns = 1 or rl.credit.type = "turn_rloo"'
        )
    first = [turns[0] if len(turns) == 2 else 0.0 for turns in rewards]
    ends = [
        last + math.fsum(turns) - earned
        for turns, last, earned in zip(rewards, outcomes, first, strict=True)
    ]
    of_turn = group_advantages(first, groups, advantage)
    of_outcome = group_advantages(ends, groups, advantage)
    of_sum = group_advantages(
        [one + other for one, other in zip(first, ends, strict=True)], groups, advantage
    )
    return [
        released(*found, turns=len(turns), weight=weight)
        for *found, turns in zip(of_turn, of_outcome, of_sum, rewards, strict=True)
    ]


def _only_agent(attempt: Attempt) -> Turns:
    if len(attempt.agents) != 1:
        raise RecipeError(
            f'rl.credit.type = "mt_grpo": episode {attempt.episode.id} has '
            f"{len(attempt.agents)} trajectories, and turns of a team have no common order; set "
            'rl.credit.type = "turn_rloo"'
        )
    return attempt.agents[0]


def _refuse_unequal(attempts: Sequence[Attempt], rewards: Sequence[Turns]) -> None:
    counts: dict[Hashable, set[int]] = {}
    for attempt, turns in zip(attempts, rewards, strict=True):
        counts.setdefault(attempt.group, set()).add(len(turns))
        if len(counts[attempt.group]) > 1:
            found = " and ".join(map(str, sorted(counts[attempt.group])))
            raise RecipeError(
                f'rl.credit.type = "mt_grpo": attempts at problem {attempt.episode.problem.id} '
                f"(group {attempt.group}) have {found} turns, and it compares attempts with "
                'equally many; set rl.credit.type = "turn_rloo", which does not ask for that'
            )
