"""Groups inside groups: turns that began from the same state are compared (GiGPO, 2505.10978)."""

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

from forethought.core.messages import Message, ToolReply
from forethought.core.trajectory import Trajectory
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.credit.attempts import Attempt, Turns
from forethought.learning.credit.settings import CreditSettings


def gigpo(attempts: Sequence[Attempt], credit: CreditSettings) -> list[Turns]:
    """A^E + weight * A^S for each turn; a state that was met once has A^S = 0."""
    states = [
        tuple(state for each in one.episode.trajectories for state in anchors(each))
        for one in attempts
    ]
    groups = [attempt.group for attempt in attempts]
    returns = [
        tuple(each for mine in attempt.returns(credit.decay) for each in mine)
        for attempt in attempts
    ]
    totals = [attempt.total for attempt in attempts]
    counts = list(map(len, returns)) if credit.episode_over == "turns" else None
    of_attempts = episode_advantages(totals, groups, credit.advantage, counts)
    of_states = state_advantages(returns, states, groups, credit.advantage)
    return [
        tuple(whole + credit.turn_weight * each for each in mine)
        for whole, mine in zip(of_attempts, of_states, strict=True)
    ]


def episode_advantages(
    totals: Sequence[float],
    groups: Sequence[Hashable],
    advantage: AdvantageSettings,
    counts: Sequence[int] | None = None,
) -> list[float]:
    """A^E, one an attempt; with `counts` an attempt enters its group once for each of its turns."""
    counts = [1] * len(totals) if counts is None else counts
    rows = [place for place, count in enumerate(counts) for _ in range(count)]
    found = group_advantages(
        [totals[row] for row in rows], [groups[row] for row in rows], advantage
    )
    by_attempt = dict(zip(rows, found, strict=True))
    return [by_attempt.get(place, 0.0) for place in range(len(totals))]


def state_advantages(
    returns: Sequence[Sequence[float]],
    states: Sequence[Sequence[Hashable]],
    groups: Sequence[Hashable],
    advantage: AdvantageSettings,
) -> list[Turns]:
    """A^S: each return compared with the group's others from the same state, own visits too.

    A state that was met once says nothing, whatever `advantage.singleton` is.
    """
    advantage = advantage.model_copy(update={"singleton": "zero"})
    keys = [(group, state) for group, mine in zip(groups, states, strict=True) for state in mine]
    flat = iter(group_advantages([each for mine in returns for each in mine], keys, advantage))
    return [tuple(next(flat) for _ in mine) for mine in returns]


def anchors(trajectory: Trajectory) -> Iterator[Hashable]:
    """The state that each turn began from: what was observed last, not all that went before."""
    if trajectory.turns:
        yield trajectory.agent, tuple(map(_seen, trajectory.opening))
    for before, _ in pairwise(trajectory.turns):
        yield trajectory.agent, tuple(map(_seen, before.replies))


def _seen(message: Message) -> tuple[str, str, str]:
    if isinstance(message, ToolReply):
        return message.name, message.status, message.text
    return message.role, "", message.text
