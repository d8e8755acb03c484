"""Credit for whole attempts: how much better each went than the others of its group.

One function a kind, over the measured rewards of one group; `group_advantages` applies one of them
to a batch of groups. Spreading an advantage over turns or tokens is not done here. Plain float64,
no tensors.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings

SAME = 1e-9
"""Rewards this close are equal. A computed deviation of equal floats need not be zero."""

EPSILON = 1e-6
"""Added to a deviation when the recipe does not say."""

SCALED = ("grpo", "batch_scaled")
"""The kinds that divide by a deviation."""

AdvantageName = Literal["grpo", "dr_grpo", "batch_scaled", "rloo", "opo", "maxrl"]


class AdvantageSettings(Settings):
    """How attempts of one group are compared."""

    kind: AdvantageName = "grpo"
    """Which baseline and which scale."""
    epsilon: float = Field(default=EPSILON, ge=0)
    """Added to a deviation before dividing by it (grpo, batch_scaled)."""
    ddof: Literal[0, 1] = 1
    """1: sample deviation; 0: population deviation (grpo, batch_scaled)."""
    singleton: Literal["zero", "raw"] = "zero"
    """What an attempt without company gets: nothing, or its own reward."""

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        if self.kind not in SCALED and (self.epsilon, self.ddof) != (EPSILON, 1):
            raise RecipeError(
                f"advantage.epsilon = {self.epsilon}, advantage.ddof = {self.ddof}: {self.kind} "
                f"divides by no deviation; remove them or use one of {', '.join(SCALED)}"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What a kind may look at: one group's rewards, lengths in policy tokens, the batch's spread.

    >>> dr_grpo(Company(rewards=(1.0, 0.0), lengths=(3.0, 5.0), batch_spread=0.5, epsilon=0.0))
    [0.5, -0.5]
    """

    rewards: Sequence[float]
    lengths: Sequence[float]
    batch_spread: float
    epsilon: float
    ddof: int = 1


def deviation(values: Sequence[float], ddof: int) -> float:
    """Standard deviation with `ddof` degrees of freedom taken; 0 where it is undefined."""
    freedom = len(values) - ddof
    if freedom <= 0:
        return 0.0
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom)


def varies(rewards: Sequence[float]) -> bool:
    """Whether attempts differ at all: a group without this teaches nothing. NaN is left out."""
    known = [reward for reward in rewards if not math.isnan(reward)]
    return bool(known) and max(known) - min(known) > SAME


def grpo(company: Company) -> list[float]:
    """(R - mean) / (deviation + epsilon), of the group (GRPO, 2402.03300)."""
    scale = deviation(company.rewards, company.ddof) + company.epsilon
    return [centred / scale for centred in dr_grpo(company)]


def dr_grpo(company: Company) -> list[float]:
    """R - mean: hard and easy problems are not stretched (Dr. GRPO, 2503.20783)."""
    mean = _mean(company.rewards)
    return [reward - mean for reward in company.rewards]


def batch_scaled(company: Company) -> list[float]:
    """R - mean of the group, over the deviation of the whole batch."""
    scale = company.batch_spread + company.epsilon
    return [centred / scale for centred in dr_grpo(company)]


def rloo(company: Company) -> list[float]:
    """R - mean of the *other* attempts (RLOO, 2402.14740)."""
    size = len(company.rewards)
    return [centred * size / (size - 1) for centred in dr_grpo(company)]


def opo(company: Company) -> list[float]:
    """R - mean weighted by length, the baseline of least variance (OPO, 2505.23585)."""
    weighted = zip(company.rewards, company.lengths, strict=True)
    baseline = math.fsum(reward * length for reward, length in weighted) / sum(company.lengths)
    return [reward - baseline for reward in company.rewards]


def maxrl(company: Company) -> list[float]:
    """(R - mean) / mean: rare successes count for more (MaxRL, 2602.02710).

    Raises ValueError for a negative reward: the mean must be a rate of success.
    """
    if min(company.rewards) < 0:
        raise ValueError(
            f"maxrl divides by the mean reward, got a reward of {min(company.rewards)}: "
            "give it rewards of 0 or more"
        )
    mean = _mean(company.rewards)
    return [centred / mean for centred in dr_grpo(company)]


ADVANTAGES: dict[AdvantageName, Callable[[Company], list[float]]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "batch_scaled": batch_scaled,
    "rloo": rloo,
    "opo": opo,
    "maxrl": maxrl,
}


def group_advantages(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    settings: AdvantageSettings,
    lengths: Sequence[float] | None = None,
) -> list[float]:
    """One advantage an attempt, in the order given; `lengths` in policy tokens (all 1 if absent).

    `groups` holds the id of each attempt's *instance* of a problem: two draws of one problem are
    two groups. A NaN reward is unknown: it leaves every statistic and gets 0. A group whose
    rewards are equal gets exactly 0. Raises ValueError for an infinite reward or unequal lengths.
    """
    if any(math.isinf(reward) for reward in rewards):
        raise ValueError("a reward is infinite: use NaN for one that is not known")
    lengths = [1.0] * len(rewards) if lengths is None else lengths
    members: dict[Hashable, list[int]] = {}
    for index, (reward, group, _) in enumerate(zip(rewards, groups, lengths, strict=True)):
        if not math.isnan(reward):
            members.setdefault(group, []).append(index)
    known = [rewards[index] for indices in members.values() for index in indices]
    spread = deviation(known, settings.ddof)
    advantages = [0.0] * len(rewards)
    for indices in members.values():
        company = Company(
            rewards=[rewards[index] for index in indices],
            lengths=[lengths[index] for index in indices],
            batch_spread=spread,
            epsilon=settings.epsilon,
            ddof=settings.ddof,
        )
        for index, advantage in zip(indices, _compare(company, settings), strict=True):
            advantages[index] = advantage
    return advantages


def gdpo(
    dimensions: Sequence[Sequence[float]],
    groups: Sequence[Hashable],
    lengths: Sequence[float],
    settings: AdvantageSettings,
) -> list[float]:
    """Several rewards an attempt: compare each alone, add up, whiten over the batch's tokens.

    A reward that hardly varies is so not drowned by one that does (GDPO, 2601.05242). `dimensions`
    holds one sequence of rewards a dimension; `lengths` are in policy tokens.
    """
    compared = [group_advantages(rewards, groups, settings) for rewards in dimensions]
    sums = [math.fsum(parts) for parts in zip(*compared, strict=True)]
    weighted = list(zip(sums, lengths, strict=True))
    tokens = math.fsum(lengths)
    if tokens <= 1 or not varies(sums):
        return [0.0] * len(sums)
    mean = math.fsum(value * length for value, length in weighted) / tokens
    squares = math.fsum(length * (value - mean) ** 2 for value, length in weighted)
    scale = math.sqrt(squares / (tokens - 1) + 1e-8)
    return [(value - mean) / scale for value in sums]


def _compare(company: Company, settings: AdvantageSettings) -> list[float]:
    """The group's advantages, with the two cases settled in which there is nothing to compare."""
    if len(company.rewards) == 1 and settings.singleton == "raw":
        return [company.rewards[0] / (1.0 + settings.epsilon if settings.kind == "grpo" else 1.0)]
    if not varies(company.rewards):
        return [0.0] * len(company.rewards)
    return ADVANTAGES[settings.kind](company)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
