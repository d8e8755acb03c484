"""Credit for whole attempts: how much better each went than the others of its group.

One function a kind, over the measured rewards of one group; `group_advantages` applies one of them
to a batch of groups. Three kinds (`WHITENED`) look at the whole batch instead. Spreading an
advantage over turns or tokens is not done here. Plain float64, no tensors.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from forethought.core.errors import RecipeError
from forethought.core.settings import Settings
from forethought.learning.maxrl import maxrl_advantages
from forethought.learning.passk import lead, passk_advantages
from forethought.learning.whitening import SAME, whitened

EPSILON = 1e-6
"""Added to a deviation when the recipe does not say."""

AdvantageName = Literal[
    "grpo",
    "dr_grpo",
    "batch_scaled",
    "rloo",
    "opo",
    "passk",
    "passk_lead",
    "maxrl",
    "gdpo",
    "reinforce_pp",
    "reinforce_pp_baseline",
]

BY_VERDICT = ("passk", "maxrl")
"""The kinds that go by which attempts are right, whatever these earned."""

WHITENED = ("gdpo", "reinforce_pp", "reinforce_pp_baseline")
"""The kinds that end in whitening over all policy tokens of the batch."""

USES: dict[str, tuple[AdvantageName, ...]] = {
    "epsilon": ("grpo", "batch_scaled", "passk", "passk_lead", "gdpo"),
    "ddof": ("grpo", "batch_scaled", "passk_lead", *WHITENED),
    "k": ("passk",),
}
"""The settings that not every kind reads, and the kinds that do."""


class AdvantageSettings(Settings):
    """How attempts of one group are compared."""

    kind: AdvantageName = "grpo"
    """Which baseline and which scale."""
    epsilon: float = Field(default=EPSILON, ge=0)
    """Added to a deviation before dividing by it (grpo, batch_scaled, passk, passk_lead, gdpo)."""
    ddof: Literal[0, 1] = 1
    """1: sample deviation; 0: population deviation (the same kinds but passk, and reinforce_pp,
    reinforce_pp_baseline)."""
    k: int = Field(default=4, ge=1)
    """Of how many attempts one has to be right (passk)."""
    singleton: Literal["zero", "raw"] = "zero"
    """What an attempt without company gets: nothing, or its own reward."""

    @model_validator(mode="after")
    def _refuse_what_does_not_apply(self) -> Self:
        for name, kinds in USES.items():
            value: object = getattr(self, name)
            if self.kind not in kinds and value != type(self).model_fields[name].default:
                raise RecipeError(
                    f"rl.credit.advantage.{name} = {value}: {self.kind} has no use for it; remove "
                    f"it or use one of {', '.join(kinds)}"
                )
        if self.kind == "reinforce_pp" and self.singleton == "raw":
            raise RecipeError(
                'rl.credit.advantage.singleton = "raw": reinforce_pp compares with the batch and '
                "not within groups; remove it or use reinforce_pp_baseline"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What a kind may look at: one group's rewards, lengths in policy tokens, the batch's spread.

    `right` says of each attempt whether it is right, whatever it earned; only the kinds that go
    `BY_VERDICT` need it.

    >>> dr_grpo(Company(rewards=(1.0, 0.0), lengths=(3.0, 5.0), batch_spread=0.5, epsilon=0.0))
    [0.5, -0.5]
    """

    rewards: Sequence[float]
    lengths: Sequence[float]
    batch_spread: float
    epsilon: float
    ddof: int = 1
    k: int = 1
    right: Sequence[bool] = ()


def deviation(values: Sequence[float], ddof: int) -> float:
    """Standard deviation with `ddof` degrees of freedom taken; 0 where it is undefined."""
    freedom = len(values) - ddof
    if freedom <= 0:
        return 0.0
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / freedom)


def varies(rewards: Sequence[float]) -> bool:
    """Whether attempts differ by more than `SAME`: a group without this teaches nothing.

    A computed deviation of equal floats need not be zero. NaN is left out.
    """
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
    """R - mean of the group, over the deviation of the whole batch (Lite PPO, 2508.08221)."""
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


def passk(company: Company) -> list[float]:
    """What an attempt adds to pass@k (2508.10751), by which attempts are right.

    Rewards do not tell: a wrong answer may earn something, and a right one nothing.
    """
    right = company.right
    gain, loss = passk_advantages(len(right), sum(right), company.k, company.epsilon)
    return [gain if each else loss for each in right]


def maxrl(company: Company) -> list[float]:
    """(R - mean) / mean, where R is 1 for a right attempt and 0 for a wrong one (2602.02710)."""
    right = company.right
    gain, loss = maxrl_advantages(len(right), sum(right))
    return [gain if each else loss for each in right]


def passk_lead(company: Company) -> list[float]:
    """How far the best attempt is ahead of the second, over the deviation (2503.19595)."""
    scale = deviation(company.rewards, company.ddof) + company.epsilon
    return [ahead / scale for ahead in lead(company.rewards)]


ADVANTAGES: dict[AdvantageName, Callable[[Company], list[float]]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "batch_scaled": batch_scaled,
    "rloo": rloo,
    "opo": opo,
    "passk": passk,
    "passk_lead": passk_lead,
    "maxrl": maxrl,
}


def group_advantages(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    settings: AdvantageSettings,
    lengths: Sequence[float] | None = None,
    right: Sequence[bool] | None = None,
) -> list[float]:
    """One advantage an attempt, in the order given; `lengths` in policy tokens (all 1 if absent).

    The kinds that whiten do so over these tokens: there an attempt that is not trained has none.
    `right` says which attempts are right, which the kinds that go `BY_VERDICT` need.

    `groups` holds the id of each attempt's *instance* of a problem: two draws of one problem are
    two groups. A NaN reward is unknown: it leaves every statistic and gets 0. A group whose
    rewards are equal gets exactly 0 before whitening, which moves all by the batch's mean;
    `BY_VERDICT`, one whose attempts are all right or all wrong.
    Raises ValueError for an infinite reward, unequal lengths, or `right` that is missing.
    """
    if any(math.isinf(reward) for reward in rewards):
        raise ValueError("a reward is infinite: use NaN for one that is not known")
    if settings.kind in BY_VERDICT and right is None:
        raise ValueError(f"{settings.kind} goes by which attempts are right: give `right`")
    lengths = [1.0] * len(rewards) if lengths is None else lengths
    if settings.kind in WHITENED:
        return _over_the_batch(rewards, groups, lengths, settings)
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
            k=settings.k,
            right=[] if right is None else [right[index] for index in indices],
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
    within = settings.model_copy(update={"kind": "grpo"})
    compared = [group_advantages(rewards, groups, within) for rewards in dimensions]
    sums = [math.fsum(parts) for parts in zip(*compared, strict=True)]
    return whitened(sums, lengths, settings.ddof)


def reinforce_pp_baseline(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    lengths: Sequence[float],
    settings: AdvantageSettings,
) -> list[float]:
    """R - mean of the group, whitened over the batch's policy tokens (2501.03262)."""
    within = AdvantageSettings(kind="dr_grpo", singleton=settings.singleton)
    return whitened(group_advantages(rewards, groups, within), lengths, settings.ddof)


def _over_the_batch(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    lengths: Sequence[float],
    settings: AdvantageSettings,
) -> list[float]:
    """The kinds that whiten over the batch; an unknown reward leaves its statistics too.

    `reinforce_pp` whitens rewards (REINFORCE++, 2501.03262): without discount and penalty they are
    every token's return. Returns that differ within an attempt are for `credit.gae.whiten`.
    """
    known = [place for place, reward in enumerate(rewards) if not math.isnan(reward)]
    values = [rewards[place] for place in known]
    names = [groups[place] for place in known]
    sizes = [lengths[place] for place in known]
    if settings.kind == "gdpo":
        found = gdpo([values], names, sizes, settings)
    elif settings.kind == "reinforce_pp":
        found = whitened(values, sizes, settings.ddof)
    else:
        found = reinforce_pp_baseline(values, names, sizes, settings)
    advantages = [0.0] * len(rewards)
    for place, advantage in zip(known, found, strict=True):
        advantages[place] = advantage
    return advantages


def _compare(company: Company, settings: AdvantageSettings) -> list[float]:
    """The group's advantages, with the two cases settled in which there is nothing to compare."""
    if len(company.rewards) == 1 and settings.singleton == "raw":
        return [company.rewards[0] / (1.0 + settings.epsilon if settings.kind == "grpo" else 1.0)]
    if settings.kind not in BY_VERDICT and not varies(company.rewards):
        return [0.0] * len(company.rewards)
    return ADVANTAGES[settings.kind](company)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
