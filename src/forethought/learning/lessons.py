"""What episodes teach: rewards within a group, made into advantages and then into a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from forethought.core.trajectory import Episode, Group, Tokens
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.batch import Batch, pad
from forethought.learning.rewards import Reward, RewardSettings, score_episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A group's measured episodes, each with its reward and its advantage over the others."""

    group: Group
    episodes: tuple[Episode, ...]
    rewards: tuple[Reward, ...]
    advantages: tuple[float, ...]

    @property
    def is_informative(self) -> bool:
        """Whether any attempt has an advantage: without one there is no gradient."""
        return any(self.advantages)


def score(
    groups: Sequence[Group], reward: RewardSettings, advantage: AdvantageSettings
) -> list[Lesson]:
    """Reward every measured episode and compare it with its group."""
    pairs = [
        (group, episode, score_episode(episode, reward))
        for group in groups
        for episode in group.measured
    ]
    compared = group_advantages(
        [each.total for _, _, each in pairs],
        [group.id for group, _, _ in pairs],
        advantage,
        [sum(one.sampled_tokens for one in episode.trajectories) for _, episode, _ in pairs],
    )
    lessons: list[Lesson] = []
    for group in groups:
        mine = [place for place, (other, _, _) in enumerate(pairs) if other is group]
        lessons.append(
            Lesson(
                group=group,
                episodes=group.measured,
                rewards=tuple(pairs[place][2] for place in mine),
                advantages=tuple(compared[place] for place in mine),
            )
        )
    return lessons


def assemble(lessons: Sequence[Lesson]) -> Batch:
    """Give every sampled token of an episode that episode's advantage."""
    rows: list[tuple[Tokens, float]] = [
        (segment, advantage)
        for lesson in lessons
        for episode, advantage in zip(lesson.episodes, lesson.advantages, strict=True)
        for trajectory in episode.trajectories
        for segment in trajectory.segments
        if any(segment.sampled)
    ]
    return pad([tokens for tokens, _ in rows], [advantage for _, advantage in rows])
