"""A whole round whose turns a judge scores, behind a real endpoint: what comes of its scores."""

from math import isnan, nan
from statistics import fmean

import pytest

from forethought.core.errors import RecipeError
from forethought.core.verdict import Verdict
from learning.rewards.test_judge import said
from learning.test_rl import Training
from policy.endpoint import serving
from tiny import same_weights, weights

WEIGHT, SIZE, ATTEMPTS = 0.25, 4, 16
DOWN, MUTTERING = (500, "down"), said("They all tried.")
SCORES = [round((7 * number % 21 - 10) / 10, 1) for number in range(ATTEMPTS)]
UNREADABLE, FAILED = 3, 9


class Overhearing:
    """A learner, and the batches that it was given."""

    def __init__(self, learner):
        self.learner, self.batches = learner, []

    def __getattr__(self, name):
        return getattr(self.learner, name)

    async def update(self, batch, objective, entropy=None):
        self.batches.append(batch)
        return await self.learner.update(batch, objective, entropy)


def judged(folder, endpoint, **how):
    """One round of four groups of right attempts, alike but for what a judge says of them."""
    asked = {"base_url": endpoint.url, "model": "m", "concurrency": 1, "retries": 0}
    reward = {"judge": {"weight": WEIGHT, "endpoint": asked}}
    return Training(
        folder,
        lambda *_: Verdict.right(),
        steps=1,
        updates=1,
        more={"group_size": SIZE, "reward": reward, "credit": {"type": "turn_rloo"}},
        **how,
    )


def told(text):
    return said(f"Turn 1: {text}")


def test_scores_become_rewards_advantages_and_figures_and_what_is_not_known_leaves_them(tmp_path):
    answers = [told(score) for score in SCORES]
    answers[UNREADABLE], answers[FAILED] = MUTTERING, DOWN
    heard = []

    def through(learner):
        heard.append(Overhearing(learner))
        return heard[0]

    with serving(*answers) as endpoint:
        training = judged(tmp_path, endpoint, through=through)
        before = weights(training.model.network)
        training.run()
        assert len(endpoint.asked) == ATTEMPTS
    figures, groups, (earned,) = training.journal()
    names = [episode.id for group in groups for episode in group.episodes]
    parts = [WEIGHT * score for score in SCORES]
    parts[UNREADABLE] = parts[FAILED] = nan
    expected = {
        name: {"outcome": 1.0, "tool_bonus": 0.0, "overlong": 0.0, "judge": part}
        for name, part in zip(names, parts, strict=True)
    }
    assert list(earned) == names
    for name, components in expected.items():
        assert earned[name] == pytest.approx(components, nan_ok=True)

    known = [part for part in parts if not isnan(part)]
    found = {name: value for name, [(_, value)] in figures.items()}
    assert found["judge/unreadable"] == found["judge/failed"] == 1 / ATTEMPTS
    assert found["reward/judge"] == pytest.approx(fmean(known))
    assert found["reward/judge/not_measured"] == pytest.approx(2 / ATTEMPTS)
    assert found["reward/mean"] == pytest.approx(1.0 + fmean(known))

    [batch] = heard[0].batches
    advantages = batch.advantages_BT[batch.mask_BT].tolist()  # one token is trained in each row
    assert dict(zip(batch.names, advantages, strict=True)) == pytest.approx(compared(names, parts))
    assert not same_weights(weights(training.model.network), before)


def compared(names, parts):
    """What each attempt earned less what the others of its group did, where both are known."""
    found = {}
    for first in range(0, len(names), SIZE):
        group = range(first, first + SIZE)
        for place in group:
            others = [parts[one] for one in group if one != place and not isnan(parts[one])]
            if not isnan(parts[place]):
                found[names[place]] = parts[place] - fmean(others)
    return found


def test_an_endpoint_that_judges_too_few_stops_the_run_before_it_learns(tmp_path):
    answers = [told(score) for score in SCORES]
    answers[:4] = [DOWN] * 4
    with serving(*answers) as endpoint:
        training = judged(tmp_path, endpoint)
        before = weights(training.model.network)
        where = rf"rl\.reward\.judge\.endpoint, the model 'm' at {endpoint.url}: 25% of the "
        with pytest.raises(RecipeError, match=rf"{where}.* rl\.limits\.not_measured allows 10%"):
            training.run()
    assert same_weights(weights(training.model.network), before)
    assert training.journal() == ({}, [], [])


def test_a_judge_whom_nobody_can_read_stops_no_run_and_teaches_nothing(tmp_path):
    with serving(*[MUTTERING] * ATTEMPTS) as endpoint:
        training = judged(tmp_path, endpoint)
        before = weights(training.model.network)
        (report,) = training.run().reports
    assert (report["judge/unreadable"], report["judge/failed"]) == (1.0, 0.0)
    assert report["updates"] == 0.0
    assert same_weights(weights(training.model.network), before)
