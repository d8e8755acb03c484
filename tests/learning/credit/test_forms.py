"""Each form of credit meets its worked numbers and keeps what it promises."""

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, ToolReply, ToolStatus, User
from forethought.core.trajectory import Finish, Stop, Trajectory, Turn
from forethought.learning.advantage import AdvantageSettings, group_advantages
from forethought.learning.credit.attempts import Credit, turn_returns
from forethought.learning.credit.catalogue import CREDITS, assign
from forethought.learning.credit.gigpo import anchors, episode_advantages, state_advantages
from forethought.learning.credit.mt_grpo import compare_turns, k_turn, released
from forethought.learning.credit.settings import CreditName, CreditSettings
from forethought.learning.credit.turn_rloo import turn_rloo
from forethought.learning.credit.turn_rtg import turn_rtg
from learning.credit.made import attempt
from scripted import MARKS


def golden(name):
    return json.loads((Path(__file__).parents[2] / f"golden/{name}.json").read_text())


TURNS, STATES = golden("09_turn_level"), golden("10_gigpo")
PLAIN = AdvantageSettings(epsilon=0)
BY_TURN = ("turn_rtg", "turn_rloo", "gigpo")
rewards = st.lists(
    st.lists(st.integers(-10, 10).map(lambda n: n / 10), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)
quick = settings(max_examples=60, deadline=None)


def near(expected, tolerance=TURNS["tolerance"]):
    return approx(expected, abs=tolerance, rel=0)


def credited(type, attempts, advantage=None, **chosen):
    compared = advantage or AdvantageSettings()
    return assign(
        attempts, CreditSettings(type=type, advantage=compared, **chosen), turns_earn=True
    )


def test_two_turns_as_printed_meet_the_worked_numbers():
    case = TURNS["mt_grpo_k2"]
    groups = ["g"] * 4
    of_turn = compare_turns([[reward] for reward in case["R_I"]], groups, PLAIN)
    of_outcome = group_advantages(case["R_O"], groups, PLAIN)
    assert [turn for (turn,) in of_turn] == near(case["A_I_noeps"])
    assert of_outcome == near(case["A_O_noeps"])
    for turns, outcome, expected in zip(
        of_turn, of_outcome, case["turn_adv_paper_eq5"], strict=True
    ):
        assert k_turn(turns, outcome, case["alpha"]) == near(expected)
    attempts = [
        attempt((earned, 0.0), last=last)
        for earned, last in zip(case["R_I"], case["R_O"], strict=True)
    ]
    found = credited("mt_grpo", attempts, PLAIN, discount=0.5)
    assert [list(each.turns) for each in found] == [
        near(turns) for turns in case["turn_adv_paper_eq5"]
    ]


def test_many_turns_as_printed_meet_the_worked_numbers():
    case = TURNS["mt_grpo_k_turn_eq12"]
    assert k_turn(case["A_I"], case["A_O"], case["alpha"]) == near(case["adv_per_turn"])


def test_two_turns_as_released_meet_the_worked_numbers():
    case, code = TURNS["mt_grpo_k2"], TURNS["mt_grpo_k2"]["code"]
    attempts = [
        attempt((earned, 0.0) if called else (0.0,), last=last)
        for earned, last, called in zip(
            case["R_I"], case["R_O"], code["has_tool_result"], strict=True
        )
    ]
    advantage = AdvantageSettings(epsilon=code["eps"])
    found = credited("mt_grpo", attempts, advantage, form="released")
    for each, turn_ids, expected in zip(found, case["turn_id"], code["token_adv"], strict=True):
        assert [each.turns[k] if k >= 0 else 0.0 for k in turn_ids] == near(expected)
    weighted = released(code["A_I"][0], code["A_O"][0], 0.0, turns=2, weight=2.0)
    assert weighted[0] - weighted[1] == approx(2 * code["A_I"][0])


def test_attempts_with_unequal_turns_are_refused_by_name():
    attempts = [attempt((0.1, 0.0), group="rl/0/0/p"), attempt((0.0,), group="rl/0/0/p")]
    message = r"attempts at problem p \(group rl/0/0/p\) have 1 and 2 turns.*turn_rloo"
    with pytest.raises(RecipeError, match=message):
        credited("mt_grpo", attempts)
    apart = [attempt((0.1, 0.0), group="a"), attempt((0.0,), group="b")]
    assert [each.whole for each in credited("mt_grpo", apart)] == [0.0, 0.0]


def test_what_turns_one_by_one_cannot_compare_is_refused():
    with pytest.raises(RecipeError, match="3 turns, and that form knows two"):
        credited("mt_grpo", [attempt((0.0, 0.0, 0.0))], form="released")
    with pytest.raises(RecipeError, match=r"has 2 trajectories.*team"):
        credited("mt_grpo", [attempt((0.0,), (0.0,))])


def test_returns_by_turn_number_meet_the_worked_numbers():
    case = TURNS["variable_turn_extension"]
    attempts = [attempt(turns) for turns in case["turn_rewards"]]
    for one, expected in zip(attempts, case["return_to_go"], strict=True):
        assert list(one.returns(case["gamma"])) == [near(expected)]
    found = credited("turn_rtg", attempts)
    assert [list(each.turns) for each in found] == [near(turns) for turns in case["adv"]]


def test_the_outcome_is_earned_with_the_last_turn_and_discounted_once_a_turn():
    assert turn_returns([1.0, 0.0, 2.0], 4.0, 0.5) == [2.5, 3.0, 6.0]
    (found,) = attempt((1.0, 0.0, 2.0), last=4.0).returns(0.5)
    assert found == [2.5, 3.0, 6.0]
    assert turn_returns([], 4.0, 0.5) == []


def test_what_other_agents_earned_counts_at_the_end_of_each():
    first, second = attempt((0.5, 0.0), (0.25,), last=1.0).returns(1.0)
    assert (first, second) == ([1.75, 1.25], [1.75])


def test_a_reward_with_another_number_of_turns_is_refused():
    one = attempt((0.5, 0.0))
    other = type(one)(group="g", episode=attempt((0.0,)).episode, reward=one.reward)
    with pytest.raises(ValueError, match="has 1 turns and 2 rewards"):
        assign([other], CreditSettings(type="turn_rtg"), turns_earn=True)


def test_leave_one_out_a_turn_by_hand():
    long, short = attempt((0.5, 0.0), last=1.0), attempt((0.0,), last=-1.0)
    assert turn_rloo([long, short], 1.0, "all") == [(2.5, 1.0), (-2.5,)]
    # Nobody else reached the second turn: the other's total of -1 less the 0.5 earned before it.
    assert turn_rloo([long, short], 1.0, "reached") == [(2.5, 2.5), (-2.5,)]
    third = attempt((0.0, 0.0), last=0.0)
    assert turn_rloo([long, short, third], 1.0, "reached")[0][1] == approx(
        1.0 - (0.0 + (-0.5 - 0.5)) / 2
    )
    assert turn_rloo([long], 1.0, "reached") == [(0.0, 0.0)]


@pytest.mark.parametrize(("kind", "part"), [("grpo", "mean_std_norm"), ("dr_grpo", "mean_norm")])
@pytest.mark.parametrize("over", ["turns", "attempts"])
def test_groups_inside_groups_meet_the_worked_numbers(kind, part, over):
    inputs, expected = STATES["inputs"], STATES["expected"][part]
    advantage = AdvantageSettings(kind=kind)
    names = sorted(set(inputs["traj"]))
    rows = {name: [n for n, each in enumerate(inputs["traj"]) if each == name] for name in names}
    earned = [[inputs["step_reward"][row] for row in rows[name]] for name in names]
    returns = [turn_returns(mine, 0.0, inputs["gamma"]) for mine in earned]
    flat = [each for mine in returns for each in mine]
    assert flat == near(STATES["expected"]["discounted_return"])
    states = [[inputs["anchor_state"][row] for row in rows[name]] for name in names]
    groups = ["p"] * len(names)
    of_states = state_advantages(returns, states, groups, advantage)
    counts = [len(mine) for mine in earned] if over == "turns" else None
    of_attempts = episode_advantages([sum(mine) for mine in earned], groups, advantage, counts)
    suffix = "cross_steps" if over == "turns" else "per_trajectory"
    assert [each for mine in of_states for each in mine] == near(expected["step_adv"], 1e-9)
    spread = [whole for whole, mine in zip(of_attempts, earned, strict=True) for _ in mine]
    assert spread == near(expected[f"episode_adv_{suffix}"], 1e-9)
    total = [
        one + inputs["omega"] * other
        for one, other in zip(spread, [each for mine in of_states for each in mine], strict=True)
    ]
    assert total == near(expected[f"total_{suffix}"], 1e-9)


def spoke(*replies):
    heard = tuple(ToolReply(call_id="c", name="python", text=text) for text in replies)
    return Turn(message=Assistant(text="x"), finish=Finish.END_OF_TURN, replies=heard)


def test_a_turn_begins_from_what_was_observed_last():
    def states(*turns, opening="6 * 7?"):
        return list(
            anchors(
                Trajectory(
                    agent="a", opening=(User(text=opening),), turns=turns, stop=Stop.ANSWERED
                )
            )
        )

    one = states(spoke("1"), spoke("42"), spoke())
    other = states(spoke("42"), spoke("42"), spoke())
    assert one[0] == other[0]
    assert one[1] != other[1] == other[2] == one[2]
    assert states(spoke(), opening="else") != one[:1]
    assert states() == []
    failed = Turn(
        message=Assistant(text="x"),
        finish=Finish.END_OF_TURN,
        replies=(ToolReply(call_id="c", name="python", text="42", status=ToolStatus.TIMEOUT),),
    )
    assert states(failed, spoke())[1] != states(spoke("42"), spoke())[1]


def test_the_weight_of_turns_is_that_of_their_states():
    attempts = [attempt((0.5, 0.0), last=1.0), attempt((0.0, 0.0))]
    light, heavy = (credited("gigpo", attempts, turn_weight=weight) for weight in (0.0, 2.0))
    assert [len(set(each.turns)) for each in light] == [1, 1]
    assert heavy[0].turns[0] - light[0].turns[0] == approx(2 * 2**-0.5, rel=1e-5)


def test_a_state_that_was_met_once_says_nothing_whatever_an_attempt_alone_is_worth():
    raw = AdvantageSettings(kind="dr_grpo", singleton="raw")
    attempts = [attempt((0.5, 0.0), last=1.0), attempt((0.0,), last=-1.0)]
    found = credited("gigpo", attempts, raw, discount=1.0, episode_over="attempts")
    # Both began from one state, with returns of 1.5 and -1; one alone came to another.
    assert [each.turns for each in found] == [approx((2.5, 1.25)), approx((-2.5,))]
    (alone,) = credited("gigpo", attempts[:1], raw, episode_over="attempts")
    assert alone.turns == approx((1.5, 1.5))


def test_pass_at_k_and_maxrl_are_credited_by_verdicts():
    paid = attempt((0.0,), last=0.2)
    wrong = replace(paid, episode=replace(paid.episode, verdict=MARKS["-"]))
    late = attempt((0.0,), last=0.0)
    found = credited("outcome", [wrong, late], AdvantageSettings(kind="passk", k=1))
    assert [each.whole for each in found] == approx([-1.0, 1.0], rel=1e-5)
    found = credited("outcome", [wrong, late, wrong], AdvantageSettings(kind="maxrl"))
    assert [each.whole for each in found] == [-1.0, 2.0, -1.0]


def test_every_form_has_a_name_and_every_name_a_form():
    assert set(CREDITS) == set(get_args(CreditName))


@pytest.mark.parametrize("type", CREDITS)
def test_an_attempt_whose_reward_is_not_known_leaves_every_statistic(type):
    given = [((0.5, 0.0), 1.0), ((0.0, 0.0), 0.0), ((0.25, 0.0), -1.0)]
    known = credited(type, [attempt(turns, last=last) for turns, last in given])
    lost = attempt((float("nan"), 0.0), last=1.0)
    mixed = [attempt(turns, last=last) for turns, last in given]
    found = credited(type, [mixed[0], lost, *mixed[1:]])
    assert found == [known[0], Credit(whole=0.0), *known[1:]]


def test_the_whole_is_the_mean_over_tokens():
    assert Credit.of_turns((1.0, -1.0), (3, 1)).whole == 0.5
    assert Credit.of_turns((), ()).whole == 0.0
    assert Credit.of_turns((1.0, -1.0), (1, 1)).teaches
    assert not Credit.of_turns((0.0, 0.0), (1, 1)).teaches


@pytest.mark.parametrize("type", [type for type in CREDITS if type != "gae"])
@pytest.mark.parametrize("total", [-1.4, 0.7, -0.8])
def test_equal_attempts_are_credited_with_exactly_nothing_however_sums_round(type, total):
    attempts = [attempt((0.1, 0.2), last=total - 0.3) for _ in range(7)]
    found = credited(type, [*attempts, attempt((0.2, 0.1), last=total - 0.3, group="other")])
    assert not any(each.teaches for each in found)


@quick
@given(rewards, st.sampled_from(["grpo", "dr_grpo", "rloo"]))
def test_merged_is_the_outcome_where_turns_earn_nothing(earned, kind):
    advantage = AdvantageSettings(kind=kind)
    attempts = [attempt((0.0,) * len(turns), last=turns[0]) for turns in earned]
    for weight in (0.0, 1.0, 3.0):
        merged = credited("merged", attempts, advantage, turn_weight=weight)
        assert merged == credited("outcome", attempts, advantage)


@quick
@given(rewards)
def test_merged_weighs_what_turns_earned(earned):
    attempts = [attempt(turns, last=turns[-1]) for turns in earned]
    centred = AdvantageSettings(kind="dr_grpo")
    twice = [attempt([2 * each for each in turns], last=turns[-1]) for turns in earned]
    heavy = credited("merged", attempts, centred, turn_weight=2.0)
    assert [each.whole for each in heavy] == approx(
        [each.whole for each in credited("outcome", twice, centred)], abs=1e-9
    )


@quick
@given(rewards, st.sampled_from(BY_TURN), st.data())
def test_permuting_attempts_permutes_their_turns(earned, type, data):
    attempts = [attempt(turns, group=place % 2) for place, turns in enumerate(earned)]
    order = data.draw(st.permutations(range(len(attempts))))
    straight = credited(type, attempts)
    for place, found in zip(order, credited(type, [attempts[n] for n in order]), strict=True):
        assert found.turns == approx(straight[place].turns, abs=1e-9)


@quick
@given(rewards)
def test_advantages_of_one_turn_number_cancel_within_a_group(earned):
    found = turn_rtg([attempt(turns) for turns in earned], 1.0, AdvantageSettings())
    for turn in range(max(map(len, found))):
        assert sum(mine[turn] for mine in found if turn < len(mine)) == approx(0.0, abs=1e-8)


def shifted(earned, turn, by):
    return [
        attempt([each + by * (number == turn) for number, each in enumerate(turns)])
        for turns in earned
    ]


def values(credits):
    return [each for one in credits for each in one.turns]


@quick
@given(st.integers(1, 4), st.data(), st.sampled_from([*BY_TURN, "mt_grpo"]))
def test_a_constant_for_one_turn_changes_nothing_where_all_have_that_turn(turns, data, type):
    row = st.lists(st.integers(-10, 10).map(lambda n: n / 10), min_size=turns, max_size=turns)
    earned = data.draw(st.lists(row, min_size=2, max_size=5))
    turn = data.draw(st.integers(0, turns - 1))
    centred = None if type == "turn_rloo" else AdvantageSettings(kind="dr_grpo")
    discount = 1.0 if type == "turn_rloo" else 0.9
    found = [
        credited(type, shifted(earned, turn, by), centred, discount=discount) for by in (0.0, 0.7)
    ]
    assert values(found[1]) == approx(values(found[0]), abs=1e-9)


@pytest.mark.parametrize("type", ["turn_rtg", "turn_rloo"])
def test_a_constant_for_a_turn_that_some_do_not_reach_pays_those_that_do(type):
    earned = [[0.0, 0.0], [0.0]]
    centred = None if type == "turn_rloo" else AdvantageSettings(kind="dr_grpo")
    before, after = (credited(type, shifted(earned, 1, by), centred) for by in (0.0, 0.5))
    assert after[0].turns[0] > before[0].turns[0]
    assert after[1].turns[0] < before[1].turns[0]
