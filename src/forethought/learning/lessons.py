"""What episodes teach: rewards within a group, made into advantages and then into a batch."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from forethought.core.trajectory import Episode, Group, Tokens, Trajectory
from forethought.learning.advantage import varies
from forethought.learning.batch import Batch, pad, turn_numbers
from forethought.learning.credit.attempts import Attempt, Credit
from forethought.learning.credit.catalogue import assign
from forethought.learning.credit.selection import SelectionSettings, is_void, select
from forethought.learning.credit.settings import CreditSettings
from forethought.learning.rewards import Reward, RewardSettings, score_group

WHOLE, EVERYONE = CreditSettings(), SelectionSettings()
NOTHING = Credit(whole=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A group's measured episodes, each with its reward and what it is credited with.

    `void` marks episodes that are compared and not trained, `left_out` those that are neither.
    `by_critic` says that credits are rewards, of which a critic is yet to make advantages.
    """

    group: Group
    episodes: tuple[Episode, ...]
    rewards: tuple[Reward, ...]
    credits: tuple[Credit, ...]
    void: tuple[bool, ...]
    left_out: tuple[bool, ...]
    by_critic: bool = False

    @property
    def advantages(self) -> tuple[float, ...]:
        """One number an episode: its advantage, or the mean over its tokens where turns differ."""
        return tuple(credit.whole for credit in self.credits)

    @property
    def trained(self) -> list[tuple[Episode, Credit]]:
        """The episodes that are trained, each with what it is credited with."""
        return [
            (episode, credit)
            for episode, credit, void, left_out in zip(
                self.episodes, self.credits, self.void, self.left_out, strict=True
            )
            if not (void or left_out)
        ]

    @property
    def is_informative(self) -> bool:
        """Whether an attempt that is trained has an advantage: without one there is no gradient.

        Whatever an attempt earned, a critic learns to expect it.
        """
        return any(self.by_critic or credit.teaches for _, credit in self.trained)

    @property
    def differs_within(self) -> bool:
        """What `groups/informative` tells: with a critic, whether attempts earned different totals.

        Without one, whether any of them has an advantage.
        """
        if self.by_critic:
            return varies([reward.total for reward in self.rewards])
        return self.is_informative


def score(
    groups: Sequence[Group],
    reward: RewardSettings,
    credit: CreditSettings = WHOLE,
    selection: SelectionSettings = EVERYONE,
    judged: Mapping[str, Sequence[float]] | None = None,
    divergences: Mapping[str, float] | None = None,
) -> list[Lesson]:
    """Reward every measured episode and compare it with its group.

    `judged` holds a judge's scores by episode, where `reward` names a judge; `divergences` how many
    nats each went from the reference, where `reward` has that cost something.
    """
    attempts = [
        [_paying(attempt, reward, divergences) for attempt in _attempts(group, reward, judged)]
        for group in groups
    ]
    kept = [_kept(mine, selection) for mine in attempts]
    flat = list(zip(chain(*attempts), chain(*kept), strict=True))
    compared = iter(assign([attempt for attempt, keep in flat if keep], credit))
    # To a critic an attempt whose reward is not known would look like one that earned nothing.
    by_critic = credit.type == "gae"
    credits = iter([next(compared) if keep else NOTHING for _, keep in flat])
    return [
        Lesson(
            group=group,
            episodes=group.measured,
            rewards=tuple(attempt.reward for attempt in mine),
            credits=tuple(next(credits) for _ in mine),
            void=tuple(selection.mask_void_turns and is_void(one.episode) for one in mine),
            left_out=tuple(
                not keep or (by_critic and not one.known)
                for one, keep in zip(mine, keeps, strict=True)
            ),
            by_critic=by_critic,
        )
        for group, mine, keeps in zip(groups, attempts, kept, strict=True)
    ]


def assemble(lessons: Sequence[Lesson]) -> Batch:
    """Give every sampled token its turn's advantage, or its episode's where turns share one."""
    rows = [
        (episode.id, *row)
        for lesson in lessons
        for episode, credit in lesson.trained
        for row in _rows(episode, credit)
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

    The latter, `selection/void` and `selection/left_out`, are told where the recipe selects.
    """
    if not lessons:
        return {}
    found = {"groups/alone": fmean(len(lesson.episodes) == 1 for lesson in lessons)}
    void = list(chain.from_iterable(lesson.void for lesson in lessons))
    left_out = list(chain.from_iterable(lesson.left_out for lesson in lessons))
    if selection.mask_void_turns:
        found["selection/void"] = sum(void) / max(1, len(void))
    if selection.keep:
        found["selection/left_out"] = sum(left_out) / max(1, len(left_out))
    return found


def _attempts(
    group: Group, reward: RewardSettings, judged: Mapping[str, Sequence[float]] | None
) -> list[Attempt]:
    rewards = score_group(group, reward, judged)
    return [
        Attempt(group=group.id, episode=episode, reward=each)
        for episode, each in zip(group.measured, rewards, strict=True)
    ]


def _paying(
    attempt: Attempt, reward: RewardSettings, divergences: Mapping[str, float] | None
) -> Attempt:
    if not reward.penalties.divergence:
        return attempt
    if divergences is None:
        raise ValueError("reward.penalties.divergence is set: measure divergences first")
    lost = reward.penalties.divergence * divergences.get(attempt.episode.id, 0.0)
    components = {**attempt.reward.components, "divergence": -lost}
    return replace(attempt, reward=replace(attempt.reward, components=components))


def _kept(attempts: Sequence[Attempt], selection: SelectionSettings) -> list[bool]:
    episodes = [attempt.episode for attempt in attempts]
    places = set(select(episodes, [attempt.total for attempt in attempts], selection))
    return [place in places for place in range(len(attempts))]


def _rows(
    episode: Episode, credit: Credit
) -> Iterator[tuple[Tokens, float | list[float], list[int]]]:
    """The segments with a sampled token, each with its advantages and its turns' numbers."""
    first = 0
    for trajectory in episode.trajectories:
        mine = credit.turns[first : first + len(trajectory.turns)]
        first += len(trajectory.turns)
        numbers = turn_numbers(trajectory.segments)
        if mine:
            _refuse_other_turns(episode, trajectory, numbers)
        for segment, turns in zip(trajectory.segments, numbers, strict=True):
            if any(segment.sampled):
                by_token = [mine[turn] if turn >= 0 else 0.0 for turn in turns] if mine else None
                yield segment, by_token or credit.whole, turns


def _refuse_other_turns(
    episode: Episode, trajectory: Trajectory, numbers: Sequence[Sequence[int]]
) -> None:
    """Raise ValueError unless each turn has as many tokens in the segments as it says."""
    counts = Counter(number for row in numbers for number in row if number >= 0)
    found = [counts[number] for number in sorted(counts)]
    said = [turn.tokens for turn in trajectory.turns if turn.tokens]
    if found != said:
        raise ValueError(
            f"episode {episode.id}: its turns sampled {said} tokens and its segments hold runs of "
            f"{found}: each turn is one run of sampled tokens, with others between them"
        )
