"""What credit assignment looks at: attempts with what each turn earned, as plain numbers."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from forethought.core.trajectory import Episode
from forethought.learning.rewards import Reward

Turns = tuple[float, ...]
"""One number a turn of an episode, trajectory after trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """One attempt's advantage, and where turns differ, that of each turn.

    `whole` is then the mean over the attempt's policy tokens. `turns` is empty where all share it.

    >>> Credit.of_turns((1.0, -1.0), (3, 1)).whole
    0.5
    """

    whole: float
    turns: Turns = ()

    @classmethod
    def of_turns(cls, turns: Turns, lengths: Sequence[int]) -> "Credit":
        """Each turn's advantage; `lengths` in policy tokens."""
        weighted = math.fsum(turn * length for turn, length in zip(turns, lengths, strict=True))
        return cls(whole=weighted / max(1, sum(lengths)), turns=turns)

    @property
    def teaches(self) -> bool:
        """Whether any token has an advantage."""
        return self.whole != 0 or any(self.turns)


UNCREDITED = Credit(whole=0.0)
"""Of an attempt that is compared with nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A measured episode with its reward, and the id of its group.

    The reward's total holds what turns earned; what is left of it, `last`, came at the end, save
    for what tokens earned one by one, `by_token`. One that is `masked` is compared and not trained.
    """

    group: Hashable
    episode: Episode
    reward: Reward
    masked: bool = False
    by_token: float = 0.0

    @property
    def total(self) -> float:
        """All that the attempt earned."""
        return self.reward.total

    @property
    def last(self) -> float:
        """What no turn earned by itself: the outcome, and whatever is judged at the end."""
        return self.total - math.fsum(self.reward.per_turn) - self.by_token

    @property
    def known(self) -> bool:
        """Whether every part of the reward is a number."""
        return not math.isnan(self.total + math.fsum(self.reward.per_turn))

    @property
    def length(self) -> int:
        """Policy tokens, of all its agents."""
        return sum(trajectory.sampled_tokens for trajectory in self.episode.trajectories)

    @property
    def trained_length(self) -> int:
        """Policy tokens that are trained."""
        return 0 if self.masked else self.length

    @property
    def spoken(self) -> tuple[int, ...]:
        """Policy tokens of each turn."""
        trajectories = self.episode.trajectories
        return tuple(turn.tokens for trajectory in trajectories for turn in trajectory.turns)

    @property
    def agents(self) -> list[Turns]:
        """What each turn earned by itself, one tuple a trajectory.

        Raises ValueError when the reward does not have one number a turn.
        """
        counts = [len(trajectory.turns) for trajectory in self.episode.trajectories]
        rewards = self.reward.per_turn
        if sum(counts) != len(rewards):
            raise ValueError(
                f"episode {self.episode.id} has {sum(counts)} turns and {len(rewards)} rewards of "
                "turns: a reward gives one number a turn"
            )
        ends = list(accumulate(counts))
        return [rewards[end - count : end] for count, end in zip(counts, ends, strict=True)]

    def returns(self, discount: float) -> Iterator[list[float]]:
        """The return from each turn on, one list a trajectory.

        What other agents earned may follow from any turn, so it counts at the end, as `last` does.
        """
        earned = math.fsum(self.reward.per_turn)
        for mine in self.agents:
            others = earned - math.fsum(mine)
            yield turn_returns(mine, self.last + others, discount)


def earned_at_turns(attempt: Attempt) -> Iterator[float]:
    """What each turn earned, trajectory after trajectory.

    What no turn earned, and what other agents did, comes with a trajectory's last turn.
    """
    everything = math.fsum(attempt.reward.per_turn)
    for mine in attempt.agents:
        yield from mine[:-1]
        yield from (turn + attempt.last + everything - math.fsum(mine) for turn in mine[-1:])


def turn_returns(rewards: Sequence[float], last: float, discount: float) -> list[float]:
    """G_k = r_k + discount * G_(k+1) of turns; `last` is earned together with the last one.

    >>> turn_returns([0.5, 0.0, 0.25], 1.0, 1.0)
    [1.75, 1.25, 1.25]
    """
    found: list[float] = []
    following = 0.0
    for place, reward in enumerate(reversed(rewards)):
        following = reward + (last if place == 0 else discount * following)
        found.append(following)
    return found[::-1]
