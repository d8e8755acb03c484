"""What episodes teach: rewards within a group, made into advantages and then into a batch."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from forethought.core.trajectory import Episode, Group, Tokens
from forethought.learning.advantage import varies
from forethought.learning.batch import Batch, numbered_turns, pad, turn_numbers
from forethought.learning.credit.attempts import UNCREDITED, Attempt, Credit
from forethought.learning.credit.catalogue import assign
from forethought.learning.credit.selection import SelectionSettings, is_masked, is_void, select
from forethought.learning.credit.settings import OF_RETURNS, CreditName, CreditSettings
from forethought.learning.rewards import Reward, RewardSettings, score_group

WHOLE, EVERYONE = CreditSettings(), SelectionSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A measured attempt with its reward and what it is credited with.

    `masked` ones are compared and not trained, `left_out` ones neither: the recipe keeps others, or
    their reward is not known.
    """

    episode: Episode
    reward: Reward
    credit: Credit
    masked: bool
    left_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A group's measured attempts, graded.

    `by_critic` says that credits are rewards, of which a critic is yet to make advantages.
    """

    group: Group
    graded: tuple[Graded, ...]
    by_critic: bool = False

    @property
    def advantages(self) -> tuple[float, ...]:
        """One number an attempt: its advantage, or the mean over its tokens where turns differ."""
        return tuple(each.credit.whole for each in self.graded)

    @property
    def trained(self) -> list[Graded]:
        """The attempts that are trained."""
        return [each for each in self.graded if not (each.masked or each.left_out)]

    @property
    def is_informative(self) -> bool:
        """Whether an attempt that is trained has an advantage: without one there is no gradient.

        Whatever an attempt earned, a critic learns to expect it.
        """
        return any(self.by_critic or each.credit.teaches for each in self.trained)

    @property
    def differs_within(self) -> bool:
        """What `groups/informative` tells: with a critic, whether attempts earned different totals.

        Without one, whether any of them has an advantage.
        """
        if self.by_critic:
            return varies([each.reward.total for each in self.graded])
        return self.is_informative


def score(
    groups: Sequence[Group],
    reward: RewardSettings,
    credit: CreditSettings = WHOLE,
    selection: SelectionSettings = EVERYONE,
    judged: Mapping[str, Sequence[float]] | None = None,
    divergences: Mapping[str, Sequence[float]] | None = None,
) -> list[Lesson]:
    """Reward every measured episode and compare it with its group.

    `judged` holds a judge's scores by episode, where `reward` names a judge; `divergences` how many
    nats each of an episode's turns went from the reference, where `reward` has that cost something.
    An attempt whose reward is not known is left out: it would pull at a penalty and stand in a
    denominator.
    """
    credited = credit.chosen(turns_earn=reward.turns_earn)
    attempts = [
        [
            _paying(attempt, reward, divergences, credited)
            for attempt in _attempts(group, reward, judged, selection)
        ]
        for group in groups
    ]
    kept = [_kept(mine, selection) for mine in attempts]
    flat = zip(chain(*attempts), chain(*kept), strict=True)
    known = [attempt for attempt, keep in flat if keep]
    compared = iter(assign(known, credit, turns_earn=reward.turns_earn))
    return [
        Lesson(
            group=group,
            graded=tuple(
                Graded(
                    episode=one.episode,
                    reward=one.reward,
                    credit=next(compared) if keep else UNCREDITED,
                    masked=one.masked,
                    left_out=not keep,
                )
                for one, keep in zip(mine, keeps, strict=True)
            ),
            by_critic=credit.type == "gae",
        )
        for group, mine, keeps in zip(groups, attempts, kept, strict=True)
    ]


def assemble(lessons: Sequence[Lesson]) -> Batch:
    """Give every sampled token its turn's advantage, or its episode's where turns share one."""
    rows = [
        (each.episode.id, *row)
        for lesson in lessons
        for each in lesson.trained
        for row in _rows(each.episode, each.credit)
    ]
    batch = pad(
        [tokens for _, tokens, _, _ in rows],
        [advantages for _, _, advantages, _ in rows],
        [turns for _, _, _, turns in rows],
    )
    return replace(batch, names=tuple(name for name, _, _, _ in rows))


def summarise_comparison(
    lessons: Sequence[Lesson], selection: SelectionSettings
) -> dict[str, float]:
    """Shares of a round: groups with one measured attempt, and attempts that were not trained.

    The latter, `selection/void`, `selection/truncated` and `selection/left_out`, are told where the
    recipe selects.
    """
    if not lessons:
        return {}
    found = {"groups/alone": fmean(len(lesson.graded) == 1 for lesson in lessons)}
    graded = [each for lesson in lessons for each in lesson.graded]
    if selection.mask_void_turns:
        found["selection/void"] = _share(is_void(each.episode) for each in graded)
    if selection.mask_truncated:
        found["selection/truncated"] = _share(each.episode.truncated for each in graded)
    if selection.keep:
        found["selection/left_out"] = _share(each.left_out for each in graded)
    return found


def _share(truths: Iterable[bool]) -> float:
    """The share of them that hold; 0 of none."""
    return fmean([*truths] or [0.0])


def _attempts(
    group: Group,
    reward: RewardSettings,
    judged: Mapping[str, Sequence[float]] | None,
    selection: SelectionSettings,
) -> list[Attempt]:
    rewards = score_group(group, reward, judged)
    return [
        Attempt(
            group=group.id,
            episode=episode,
            reward=each,
            masked=is_masked(episode, selection),
        )
        for episode, each in zip(group.measured, rewards, strict=True)
    ]


def _paying(
    attempt: Attempt,
    reward: RewardSettings,
    divergences: Mapping[str, Sequence[float]] | None,
    credited: CreditName,
) -> Attempt:
    """What went from the reference costs each turn its part, where turns are told what follows.

    A critic is told by token (`improvement`); otherwise the attempt pays as a whole.
    """
    weight = reward.penalties.divergence
    if not weight:
        return attempt
    if divergences is None:
        raise ValueError("reward.penalties.divergence is set: measure divergences first")
    lost = tuple(-weight * nats for nats in divergences[attempt.episode.id])
    earned = attempt.reward
    paid = replace(earned, components={**earned.components, "divergence": math.fsum(lost)})
    if credited in OF_RETURNS:
        by_turn = tuple(map(math.fsum, zip(earned.per_turn, lost, strict=True)))
        parts = {**earned.turn_parts, "divergence": lost}
        paid = replace(paid, per_turn=by_turn, turn_parts=parts)
    by_token = math.fsum(lost) if credited == "gae" else 0.0
    return replace(attempt, reward=paid, by_token=by_token)


def _kept(attempts: Sequence[Attempt], selection: SelectionSettings) -> list[bool]:
    """Of each attempt, whether it is compared: its reward is known, and the recipe keeps it."""
    known = [place for place, attempt in enumerate(attempts) if attempt.known]
    episodes = [attempts[place].episode for place in known]
    chosen = select(episodes, [attempts[place].total for place in known], selection)
    places = {known[place] for place in chosen}
    return [place in places for place in range(len(attempts))]


def _rows(
    episode: Episode, credit: Credit
) -> Iterator[tuple[Tokens, float | list[float], list[int]]]:
    """The segments with a sampled token, each with its advantages and its turns' numbers."""
    first = 0
    for trajectory in episode.trajectories:
        mine = credit.turns[first : first + len(trajectory.turns)]
        first += len(trajectory.turns)
        numbers = numbered_turns(episode, trajectory) if mine else turn_numbers(trajectory.segments)
        for segment, turns in zip(trajectory.segments, numbers, strict=True):
            if any(segment.sampled):
                by_token = [mine[turn] if turn >= 0 else 0.0 for turn in turns] if mine else None
                yield segment, by_token or credit.whole, turns
