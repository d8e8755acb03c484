"""The reward of an attempt, put together from its components."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forethought.core.trajectory import Episode, Group
from forethought.learning.rewards import named_values, outcome, turns
from forethought.learning.rewards.calls import turns_of, unmended, unparsable
from forethought.learning.rewards.component import Component, bounded
from forethought.learning.rewards.exploration import rarity
from forethought.learning.rewards.lengths import excess, longest_without_tool, overlong
from forethought.learning.rewards.settings import RewardSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Named parts that add up to the total, and what each turn earned.

    `per_turn` has one number a turn, trajectory after trajectory: the bonus for its calls and the
    process parts that can be told by turn, which `turn_parts` holds by name. What is not known,
    such as a judgement that could not be read, is NaN, and so is the total then.

    >>> Reward(components={"outcome": -1.0, "tool_bonus": 0.25}, per_turn=(0.25, 0.0)).total
    -0.75
    """

    components: Mapping[str, float]
    per_turn: tuple[float, ...]
    turn_parts: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )

    @property
    def total(self) -> float:
        """The sum of the components."""
        return sum(self.components.values())


def score_episode(episode: Episode, settings: RewardSettings) -> Reward:
    """The components "outcome", "tool_bonus", "overlong" and those set, of one measured episode.

    Raises ValueError for an episode that is not measured: it has no reward, not even 0. Raises
    ValueError where the settings ask for what one episode cannot tell: see `score_group`.
    """
    if settings.process.exploration or settings.judge is not None:
        raise ValueError(
            "reward.process.exploration and reward.judge need more than one episode shows: use "
            "score_group"
        )
    return _reward(episode, settings, ())


def score_group(
    group: Group,
    settings: RewardSettings,
    judged: Mapping[str, Sequence[float]] | None = None,
) -> tuple[Reward, ...]:
    """The rewards of a group's measured episodes, in their order.

    `judged` holds a judge's scores by the episode's id, one a turn, NaN where one is not known; it
    is needed where `settings` name a judge. An episode that it leaves out was not judged: all NaN.
    """
    if settings.judge is not None and judged is None:
        raise ValueError("reward.judge is set: judge the groups first, with judge_groups")
    explores = settings.process.exploration > 0
    rare = rarity(group.measured) if explores else (0.0,) * len(group.measured)
    return tuple(
        _reward(episode, settings, _of_company(episode, settings, rarely, judged or {}))
        for episode, rarely in zip(group.measured, rare, strict=True)
    )


def _reward(episode: Episode, settings: RewardSettings, of_company: Sequence[Component]) -> Reward:
    if not episode.measured:
        raise ValueError(
            f"episode {episode.id} is not measured ({episode.verdict.why}): leave it out of its "
            "group instead of scoring it"
        )
    bonus = outcome.bonus_by_turn(episode, settings)
    components = {
        "outcome": outcome.outcome(episode, settings),
        "tool_bonus": outcome.tool_bonus(episode, bonus, settings),
        "overlong": overlong(episode, settings),
    }
    if settings.partial:
        components["partial"] = outcome.partial_credit(episode, settings)
    found = [*_penalties(episode, settings), *_process(episode, settings), *of_company]
    process = bounded(found, settings.process.most * max(0.0, outcome.outcome_gap(settings)))
    by_turn = {part.name: part.by_turn for part in process if part.by_turn}
    return Reward(
        components=components | {part.name: part.total for part in process},
        per_turn=tuple(map(sum, zip(bonus, *by_turn.values(), strict=True))),
        turn_parts=by_turn,
    )


def _penalties(episode: Episode, settings: RewardSettings) -> list[Component]:
    weights = settings.penalties
    found: list[Component] = []
    if weights.format:
        lost = 0.0 if outcome.has_answer(episode) else -weights.format
        found.append(Component(name="format", total=lost))
    if weights.parse:
        found.append(Component.of_turns("parse", unparsable(episode), -weights.parse))
    if weights.exception:
        found.append(Component.of_turns("exception", unmended(episode), -weights.exception))
    if weights.thinking:
        over = excess(longest_without_tool(episode), weights.thinking_limit)
        lost = -weights.thinking * over if episode.problem.tools else 0.0
        found.append(Component(name="thinking", total=lost))
    return found


def _process(episode: Episode, settings: RewardSettings) -> list[Component]:
    weights = settings.process
    by_turn = {
        "execution": (weights.execution, turns.execution),
        "retrieval": (weights.retrieval, turns.retrieval),
        "well_formed": (weights.well_formed, turns.well_formed),
        "malformed": (-weights.malformed, turns.malformed),
        "steps": (weights.steps, named_values.steps),
        "call_cost": (-weights.call_cost, turns.calls_so_far),
    }
    of_whole = {
        "coverage": (weights.coverage, named_values.coverage),
        "verification": (weights.verification, named_values.verification),
    }
    return [
        *(
            Component.of_turns(name, shown(episode), weight)
            for name, (weight, shown) in by_turn.items()
            if weight
        ),
        *(
            Component(name=name, total=weight * shown(episode))
            for name, (weight, shown) in of_whole.items()
            if weight
        ),
    ]


def _of_company(
    episode: Episode,
    settings: RewardSettings,
    rarely: float,
    judged: Mapping[str, Sequence[float]],
) -> list[Component]:
    """The parts that the other attempts or a judge decide."""
    found: list[Component] = []
    if settings.process.exploration:
        found.append(Component(name="exploration", total=settings.process.exploration * rarely))
    if settings.judge is not None:
        unknown = (math.nan,) * len(turns_of(episode))
        scores = judged.get(episode.id, unknown)
        found.append(Component.of_turns("judge", scores, settings.judge.weight))
    return found
