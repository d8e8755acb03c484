"""Which credit lets an agent learn the right number of turns, by exact expectation.

An agent may call twice, and then has to answer. Its first call earns 0.3, a second costs 0.6, and
one number decides both times whether it calls: the best chance of calling is 1/4. Every way in
which a group of attempts may end is counted with its probability, so nothing is an estimate.
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from forethought.learning.advantage import AdvantageSettings
from forethought.learning.credit.mt_grpo import compare_turns, k_turn
from forethought.learning.credit.turn_rloo import turn_rloo
from forethought.learning.credit.turn_rtg import turn_rtg
from learning.credit.made import attempt, expected_gradient, true_gradient

BEST = 0.25
SIZE = 4
chance = st.floats(0.05, 0.95)
reward = st.integers(-10, 10).map(lambda tenths: tenths / 10)
few = settings(max_examples=25, deadline=None)


def first_pays_second_costs(length):
    return (0.3, -0.6, 0.0)[: length - 1] + (0.0,), 0.0


def rloo(baseline, discount=1.0):
    return lambda attempts: turn_rloo(attempts, discount, baseline)


def by_turn_number(**compared):
    return lambda attempts: turn_rtg(attempts, 1.0, AdvantageSettings(**compared))


def pull(form, chance, earned=first_pays_second_costs, size=SIZE):
    """The expected gradient of the one number that decides both calls: above 0 it calls more."""
    return sum(expected_gradient(form, [chance, chance], size, earned))


def test_the_best_chance_is_where_the_true_gradient_changes_its_sign():
    below, best, above = (
        sum(true_gradient([p, p], first_pays_second_costs)) for p in (0.2, BEST, 0.3)
    )
    assert below > 0 > above
    assert best == approx(0.0, abs=1e-12)


@pytest.mark.parametrize("baseline", ["reached", "all"])
def test_leaving_out_the_attempt_itself_finds_the_best_number_of_turns(baseline):
    assert pull(rloo(baseline), 0.2) > 0 > pull(rloo(baseline), 0.3)
    assert pull(rloo(baseline), BEST) == approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("size", [2, 4])
def test_comparing_by_turn_number_pays_for_one_more_turn(kind, size):
    assert pull(by_turn_number(kind=kind), BEST, size=size) > 1e-3


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_comparing_by_turn_number_pays_nothing_where_turns_earn_nothing(kind):
    assert pull(by_turn_number(kind=kind), BEST, lambda length: ((0.0,) * length, 1.0)) == 0.0


@few
@given(
    chance,
    chance,
    st.lists(reward, min_size=2, max_size=2),
    st.lists(reward, min_size=3, max_size=3),
    st.sampled_from(["reached", "all"]),
    st.integers(2, 4),
)
def test_the_expected_gradient_is_that_of_the_expected_reward(
    first, second, earned, outcomes, baseline, size
):
    def of(length):
        return (*earned[: length - 1], 0.0), outcomes[length - 1]

    chances = [first, second]
    found = expected_gradient(rloo(baseline), chances, size, of)
    assert found == approx(true_gradient(chances, of), abs=1e-9)


@few
@given(chance, chance, st.lists(reward, min_size=2, max_size=2), st.integers(2, 4))
def test_centring_by_turn_number_shrinks_each_turn_by_how_few_reach_it(first, second, earned, size):
    def of(length):
        return (*earned[: length - 1], 0.0), 0.0

    chances = [first, second]
    found = expected_gradient(by_turn_number(kind="dr_grpo"), chances, size, of)
    shrunk = [
        gradient * (1.0 - (1.0 - (1.0 - reached) ** size) / (size * reached))
        for gradient, reached in zip(true_gradient(chances, of), (1.0, first), strict=True)
    ]
    assert found == approx(shrunk, abs=1e-9)


def test_turns_compared_one_by_one_refund_the_price_of_a_call():
    """Why attempts with unequal numbers of turns are refused: every call costs, and none pays."""

    def costs(length):
        return (-0.2,) * (length - 1) + (0.0,), 0.0

    def turn_by_turn(attempts):
        rewards = [attempt.agents[0][:-1] for attempt in attempts]
        groups = [attempt.group for attempt in attempts]
        compared = compare_turns(rewards, groups, AdvantageSettings(kind="dr_grpo"))
        return [k_turn(turns, 0.0, 1.0) for turns in compared]

    assert sum(true_gradient([0.5, 0.5], costs)) < -0.05
    assert pull(turn_by_turn, 0.5, costs) == 0.0
    assert pull(rloo("reached"), 0.5, costs) == approx(sum(true_gradient([0.5, 0.5], costs)))


def ascent(form, chance=0.5, steps=400, rate=8.0):
    """Where gradient ascent on the logit of calling ends."""
    for _ in range(steps):
        chance = min(
            0.99, max(0.01, chance + rate * chance * (1.0 - chance) * pull(form, chance, size=2))
        )
    return chance


def test_ascent_ends_at_the_best_number_of_turns_or_beyond_it():
    ends = [
        ascent(form)
        for form in (rloo("reached"), by_turn_number(kind="dr_grpo"), by_turn_number(kind="grpo"))
    ]
    assert ends[0] == approx(BEST, abs=1e-3)
    assert all(later > before + 0.03 for before, later in pairwise(ends))


@pytest.mark.parametrize("outcome", [-1.0, -1.4, 0.7, -0.8])
def test_equal_outcomes_teach_nothing_unless_all_are_the_baseline(outcome):
    turns = (3, 2, 2, 2, 2, 2, 1, 1)
    attempts = [attempt((0.0,) * each, last=outcome) for each in turns]
    assert all(value == 0.0 for turns in turn_rloo(attempts, 1.0, "reached") for value in turns)
    assert any(value != 0.0 for turns in turn_rloo(attempts, 1.0, "all") for value in turns)
    alike = [attempt((0.0, 0.1), last=outcome) for _ in range(7)]
    assert turn_rloo(alike, 1.0, "all") == [(0.0, 0.0)] * 7
