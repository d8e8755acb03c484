"""One round's groups in a few numbers."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from forethought.core.messages import ToolStatus
from forethought.core.trajectory import Episode, Group
from forethought.evaluation.exam import mean_entropy, summarise_tools
from forethought.learning.lessons import Lesson
from forethought.learning.rewards.figures import component_figures, mean_of_known

_FAILURES = (
    ToolStatus.MODEL_ERROR,
    ToolStatus.TIMEOUT,
    ToolStatus.MEMORY,
    ToolStatus.TRUNCATED,
)
"""How a call may fail by the model's doing."""


def summarise(groups: Sequence[Group]) -> dict[str, float]:
    """Accuracy, tool use, entropy, lengths and breaks of the measured attempts; who spoke."""
    attempts = sum(len(group.episodes) for group in groups)
    measured = [episode for group in groups for episode in group.measured]
    metrics = {"attempts/not_measured": 1.0 - len(measured) / max(1, attempts)}
    if not measured:
        return metrics
    return metrics | {
        "accuracy": fmean(episode.right for episode in measured),
        **_tool_use(measured),
        "entropy": mean_entropy(measured),
        "tokens/mean": fmean(
            sum(one.sampled_tokens for one in each.trajectories) for each in measured
        ),
        "unfinished": fmean(episode.truncated for episode in measured),
        "prefix_breaks": float(sum(map(prefix_breaks, measured))),
        "weights/version": float(max(map(_weight_version, measured))),
    }


def prefix_breaks(episode: Episode) -> int:
    """How often, in one attempt, a prompt did not extend what was seen and said before."""
    return sum(trajectory.prefix_breaks for trajectory in episode.trajectories)


def summarise_lessons(lessons: Sequence[Lesson]) -> dict[str, float]:
    """Rewards by component, and how many groups had something to compare."""
    graded = [each for lesson in lessons for each in lesson.graded]
    rewards = [each.reward for each in graded]
    right = [each.episode.right for each in graded]
    if not rewards:
        return {}
    components = component_figures(rewards, right)
    return {f"reward/{name}": value for name, value in components.items()} | {
        "reward/mean": mean_of_known([reward.total for reward in rewards]),
        "groups/informative": fmean(lesson.differs_within for lesson in lessons),
        "groups/all_right": fmean(_all_right(lesson) for lesson in lessons),
    }


def _weight_version(episode: Episode) -> int:
    """The newest weights that spoke."""
    turns = (turn for trajectory in episode.trajectories for turn in trajectory.turns)
    return max((turn.weight_version for turn in turns), default=0)


def _all_right(lesson: Lesson) -> bool:
    return bool(lesson.graded) and all(each.episode.right for each in lesson.graded)


def _tool_use(episodes: Sequence[Episode]) -> dict[str, float]:
    found = summarise_tools(episodes)
    metrics = {"tool/rate": found.rate, "tool/calls": found.calls}
    if found.success is None:
        return metrics
    return metrics | {"tool/success": found.success} | _failures(episodes)


def _failures(episodes: Sequence[Episode]) -> dict[str, float]:
    """Of all calls, one at least, the share that failed in each way."""
    sides = (trajectory for episode in episodes for trajectory in episode.trajectories)
    found = Counter(reply.status for side in sides for reply in side.replies)
    return {f"tool/{status}": found[status] / found.total() for status in _FAILURES}
