"""What a round's attempts are worth: rewards, judgements, and credit within each group."""

import math
from collections.abc import Mapping, Sequence

from forethought.core.trajectory import Group
from forethought.learning.divergence import divergences
from forethought.learning.learner import ComparingLearner
from forethought.learning.lessons import Lesson, score, summarise_comparison
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.practice import RLPlan, Round
from forethought.learning.rewards import RewardSettings, score_group
from forethought.learning.rewards.judge import (
    Judgement,
    judge_figures,
    judge_groups,
    refuse_unjudged,
    scores_of,
)


async def appraise(
    plan: RLPlan, attempted: Round, learner: ComparingLearner
) -> tuple[list[Lesson], dict[str, float]]:
    """What the chosen groups teach, and the round in numbers."""
    settings = plan.settings
    judged = await _judged(plan, attempted.chosen)
    far = None
    if settings.reward.penalties.divergence:
        far = await divergences(attempted.chosen, learner)
    lessons = score(
        attempted.chosen,
        settings.reward,
        settings.credit,
        settings.selection,
        judged=None if judged is None else scores_of(judged),
        divergences=far,
    )
    report = summarise(attempted.groups) | summarise_lessons(lessons)
    report |= summarise_comparison(lessons, settings.selection)
    if judged is not None:
        report |= judge_figures(judged)
    if settings.selection.draws > 1:
        report["groups/draws"] = float(attempted.draws)
    return lessons, report


def components_by_attempt(
    lessons: Sequence[Lesson], attempted: Round, reward: RewardSettings
) -> dict[str, Mapping[str, float]]:
    """What each measured attempt of a round earned, by the episode's id: its components by name.

    Groups that were not chosen to teach are neither judged nor compared with the reference: what
    that would have come to is NaN.
    """
    chosen = {group.id for group in attempted.chosen}
    unasked = {"divergence": math.nan} if reward.penalties.divergence else {}
    others = {
        episode.id: {**earned.components, **unasked}
        for group in attempted.groups
        if group.id not in chosen
        for episode, earned in zip(group.measured, score_group(group, reward, {}), strict=True)
    }
    return others | {
        each.episode.id: each.reward.components for lesson in lessons for each in lesson.graded
    }


async def _judged(plan: RLPlan, groups: Sequence[Group]) -> dict[str, Judgement] | None:
    judge = plan.settings.reward.judge
    if judge is None:
        return None
    found = await judge_groups(groups, judge, plan.seed)
    limit = plan.settings.limits.not_measured
    refuse_unjudged(found, limit, "rl.limits.not_measured", judge.endpoint)
    return found
