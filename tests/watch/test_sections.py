"""What a report draws is what training logs."""

import asyncio
from contextlib import closing

from forethought.journal.run import Run
from forethought.learning.batch import pad
from forethought.learning.lessons import score
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.rewards import RewardSettings
from forethought.watch.sections import CURVES, chapters, other_series, tenths
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model
from watch.synthetic_run import groups, write_series


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


def shares(folder, **by_component):
    """The figures of a run's practice that has these shares by component, and further series."""
    with Run.create_or_open(folder, {}) as run:
        series = {f"reward/{name}/share": lambda _, v=v: v for name, v in by_component.items()}
        write_series(run, "rl", 3, {"reward/mean": lambda t: t, "accuracy": lambda t: t, **series})
        (practice,) = chapters(run)
        return [one.title for one in practice.curves], [one.metric for one in other_series(run)]


def test_how_much_of_a_reward_each_component_makes_up_is_drawn_beside_its_mean(tmp_path):
    drawn, others = shares(tmp_path, outcome=0.75, tool_bonus=0.25, overlong=0.0)
    assert drawn == [
        "Mean reward",
        "Share of the reward: outcome",
        "Share of the reward: tool bonus",
        "Accuracy",
    ]
    assert others == ["reward/overlong/share"]


def test_the_share_of_a_component_that_is_alone_is_not_drawn(tmp_path):
    drawn, others = shares(tmp_path, outcome=1.0, overlong=0.0)
    assert drawn == ["Mean reward", "Accuracy"]
    assert others == ["reward/outcome/share", "reward/overlong/share"]
