"""A round's rewards in numbers, by component."""

from math import nan

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from forethought.learning.rewards import Reward
from forethought.learning.rewards.figures import (
    component_figures,
    mean_of_known,
    shares_of_total,
)


def earning(**components):
    return Reward(components=components, per_turn=())


def test_a_round_by_hand():
    rewards = [
        earning(outcome=1.0, tool_bonus=0.0),
        earning(outcome=-1.0, tool_bonus=0.4),
        earning(outcome=-1.0, tool_bonus=0.2),
    ]
    assert component_figures(rewards, [True, False, False]) == approx(
        {
            "outcome": -1 / 3,
            "outcome/share": 3 / 3.6,
            "outcome/spread": (8 / 9) ** 0.5,
            "outcome/nonzero": 1.0,
            "outcome/with_outcome": 1.0,
            "tool_bonus": 0.2,
            "tool_bonus/share": 0.6 / 3.6,
            "tool_bonus/spread": (0.08 / 3) ** 0.5,
            "tool_bonus/nonzero": 2 / 3,
            "tool_bonus/with_outcome": -(0.75**0.5),
        }
    )


def test_a_component_that_never_varies_goes_with_nothing():
    rewards = [earning(outcome=1.0, overlong=0.0), earning(outcome=-1.0, overlong=0.0)]
    found = component_figures(rewards, [True, False])
    assert "overlong/with_outcome" not in found
    assert "outcome/with_outcome" in found
    assert "outcome/with_outcome" not in component_figures(rewards[:1], [True])


def test_what_is_not_known_leaves_the_mean_and_is_told():
    rewards = [earning(judge=nan), earning(judge=0.5), earning(judge=-0.5), earning(judge=0.3)]
    found = component_figures(rewards, [True, False, True, False])
    assert found["judge"] == approx(0.1)
    assert found["judge/not_measured"] == 0.25
    assert component_figures(rewards[:1], [True]) == {"judge/not_measured": 1.0}
    assert mean_of_known([each.total for each in rewards]) == approx(0.1)
    assert mean_of_known([nan]) == 0.0


def test_shares_are_of_absolute_values_so_that_signs_do_not_cancel():
    rewards = [earning(outcome=1.0, process=-0.5), earning(outcome=-1.0, process=0.5)]
    assert shares_of_total(rewards) == approx({"outcome": 2 / 3, "process": 1 / 3})
    assert shares_of_total([earning(outcome=0.0)]) == {"outcome": 0.0}


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1))
def test_shares_of_a_round_in_which_anything_was_earned_add_up_to_one(rows):
    found = shares_of_total([earning(outcome=first, other=second) for first, second in rows])
    assert sum(found.values()) == approx(1.0 if any(a or b for a, b in rows) else 0.0)
