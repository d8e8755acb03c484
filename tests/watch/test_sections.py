"""What a report draws is what training logs."""

import asyncio
from contextlib import closing

from forethought.learning.batch import pad
from forethought.learning.lessons import score
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.rewards import RewardSettings
from forethought.watch.sections import CURVES, tenths
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model
from watch.synthetic_run import groups


def test_every_curve_of_practice_is_a_series_that_a_round_logs():
    model = local_model()
    with closing(crew_of(model)) as crew:
        learner = learner_of(model, crew)
        logged = asyncio.run(
            learner.update(pad(random_rows(2), [1.0, -1.0]), objective(LossSettings()))
        )
    attempts = groups("rl/0", problems=range(4), size=4, seed=0, tool=0.5)
    logged |= summarise(attempts)
    logged |= summarise_lessons(score(attempts, RewardSettings()))
    assert [name for name, _ in CURVES["rl"] if name not in logged] == []


def test_the_ends_of_a_series_are_means_and_one_value_is_none():
    assert tenths([float(step) for step in range(40)]) == (1.5, 37.5)
    assert tenths([0.0] * 19) is None
