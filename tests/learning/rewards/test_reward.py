import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, ToolReply, ToolStatus
from forethought.core.trajectory import Episode, Finish, Tokens, Turn
from forethought.core.verdict import Verdict
from forethought.learning.rewards import (
    RewardSettings,
    fresh_successes,
    overlong_penalty,
    response_length,
    score_episode,
)
from learning.rewards.attempts import PROBLEM, calls, episode, team, total, trajectory, turn

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/03_grpo_tcr.json").read_text())
PARTS, TOLERANCE = GOLDEN["reward_components"], GOLDEN["tolerance"]


def golden_rewards(**settings):
    limits = {"overlong_limit": PARTS["L_max"], "overlong_buffer": PARTS["L_cache"]}
    rows = zip(
        PARTS["correct"], PARTS["n_tool_calls"], PARTS["response_length_tokens"], strict=True
    )
    return [
        score_episode(
            episode(*calls(count, tokens=length), right=bool(right)),
            RewardSettings(**limits | settings),
        )
        for right, count, length in rows
    ]


def test_the_gated_reward_meets_the_worked_totals():
    found = [reward.total for reward in golden_rewards()]
    assert found == approx(PARTS["r_total_used"], abs=TOLERANCE, rel=0)


def test_the_gated_reward_meets_the_worked_parts():
    rewards = golden_rewards()
    earned = [reward.components["outcome"] + reward.components["tool_bonus"] for reward in rewards]
    penalties = [reward.components["overlong"] for reward in rewards]
    assert earned == approx(PARTS["r_out_tool_released_code"], abs=TOLERANCE, rel=0)
    assert penalties == approx(PARTS["r_length"], abs=TOLERANCE, rel=0)


def test_the_papers_reward_meets_the_worked_numbers_without_cap_and_ceiling():
    rewards = golden_rewards(variant="paper", bonus_cap=100, wrong_ceiling=1.0, overlong_buffer=0)
    found = [reward.total for reward in rewards]
    assert found == approx(PARTS["r_out_tool_paper_eq8_unclipped"], abs=TOLERANCE, rel=0)


@mark.parametrize(
    ("length", "penalty"),
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (20481, -1.0)],
)
def test_the_overlong_penalty_ramps_over_the_buffer(length, penalty):
    assert overlong_penalty(length, limit=20480, buffer=4096) == penalty


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_longer_attempt_is_never_penalised_less(first, second):
    short, long = sorted((first, second))
    assert overlong_penalty(long, limit=200, buffer=50) <= overlong_penalty(
        short, limit=200, buffer=50
    )


@mark.parametrize(
    ("variant", "right", "wrong"),
    [
        ("gated", [1.0, 1.0, 1.0], [-1.0, -0.7, -0.6]),
        ("paper", [1.0, 1.3, 1.4], [-1.0, -0.7, -0.6]),
        ("released", [1.0, 1.0, 1.0], [-1.1, -1.1, -1.1]),
        ("outcome", [1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]),
    ],
)
def test_each_variant_pays_no_three_and_nine_calls_as_described(variant, right, wrong):
    paid = {
        outcome: [total(*calls(n), right=outcome, variant=variant) for n in (0, 3, 9)]
        for outcome in (True, False)
    }
    assert paid[True] == approx(right)
    assert paid[False] == approx(wrong)


def test_the_ceiling_holds_where_the_cap_would_allow_more():
    assert total(*calls(9), bonus_cap=9, wrong_ceiling=-0.75) == approx(-0.75)


def test_the_same_code_twice_counts_once_however_it_is_laid_out():
    again = "# once more\nprint(1)   \n\n"
    assert total(turn("print(1)"), turn(again), turn("print(1)")) == approx(-0.9)


def test_indentation_is_not_layout():
    assert total(turn("if x:\n    a()\nb()"), turn("if x:\n    a()\n    b()")) == approx(-0.8)


def test_arguments_are_compared_by_value_and_not_by_the_order_of_their_names():
    first, second = '{"a": 1, "b": "2"}', '{"b": "2",  "a": 1}'
    assert fresh_successes(episode(turn(first, second, '{"a": 2, "b": "2"}'))) == (2,)


def test_one_argument_text_given_to_two_tools_is_two_calls():
    found = fresh_successes(episode(turn("4 * 7"), turn("4 * 7", name="calculator")))
    assert found == (1, 1)


@mark.parametrize("text", ["{" * 5, '{"a": ' * 20_000, '{"a":' * 3_000 + "1" + "}" * 3_000])
def test_arguments_that_cannot_be_read_are_compared_as_they_are(text):
    assert fresh_successes(episode(turn(text, text))) == (1,)


@mark.parametrize("status", [status for status in ToolStatus if status is not ToolStatus.OK])
def test_only_calls_that_went_well_earn(status):
    assert total(turn("print(1)", status=status)) == -1.0


def test_a_failed_call_may_be_tried_again_and_earn():
    failed = turn("print(1)", status=ToolStatus.TIMEOUT)
    assert fresh_successes(episode(failed, turn("print(1)"))) == (0, 1)


def test_a_reply_to_no_call_of_its_turn_earns_nothing():
    stray = ToolReply(call_id="call_9", name="python", text="4")
    lone = Turn(message=Assistant(text=""), finish=Finish.END_OF_TURN, replies=(stray,))
    assert fresh_successes(episode(lone)) == (0,)


def test_each_turn_is_told_what_its_calls_earned_until_the_cap():
    turns = turn("print(1)", "print(2)"), turn("print(1)"), turn("print(3)"), turn("a()", "b()")
    reward = score_episode(episode(*turns), RewardSettings())
    assert reward.per_turn == approx((0.2, 0.0, 0.1, 0.1))
    assert reward.components["tool_bonus"] == approx(0.4)


def test_a_correct_attempt_is_paid_nothing_for_its_calls():
    reward = score_episode(episode(*calls(3), right=True), RewardSettings())
    assert reward.per_turn == (0.0, 0.0, 0.0, 0.0)
    assert reward.total == 1.0


def test_agents_of_one_team_do_not_earn_twice_for_one_call():
    both = team([turn("print(1)")], [turn("print(1)", "print(2)")])
    assert score_episode(both, RewardSettings()).per_turn == approx((0.1, 0.1))


def test_partial_credit_of_a_wrong_answer_earns_nothing():
    graded = Episode(id="p/0", problem=PROBLEM, trajectories=(), verdict=Verdict.wrong(score=0.75))
    assert score_episode(graded, RewardSettings()).total == -1.0


def test_an_episode_that_is_not_measured_has_no_reward():
    broken = Episode(
        id="p/0", problem=PROBLEM, trajectories=(), verdict=Verdict.not_measured("sandbox died")
    )
    with raises(ValueError, match=r"p/0 is not measured \(sandbox died\)"):
        score_episode(broken, RewardSettings())


def with_segments():
    prompt, reply = Tokens.given((1, 2, 3)), Tokens.given((4, 5))
    said = Tokens(ids=(7, 8), sampled=(True, True), logprobs=(-0.1, -0.2))
    segments = Tokens.join((prompt, said, reply, said)), Tokens.join((prompt, reply, said))
    spoken = trajectory(turn("a()", tokens=4), turn(tokens=2), segments=segments)
    short = trajectory(turn(tokens=1))
    return Episode(id="p/0", problem=PROBLEM, trajectories=(short, spoken), verdict=Verdict.right())


def test_length_counts_what_the_policy_said_or_all_that_follows_the_prompt():
    assert response_length(with_segments(), "policy_tokens") == 6
    assert response_length(with_segments(), "all_tokens") == 8


def test_the_basis_of_length_decides_the_penalty():
    def penalty(basis):
        settings = RewardSettings(
            overlong_buffer=4, overlong_limit=10, overlong_factor=0.5, length_basis=basis
        )
        return score_episode(with_segments(), settings).components["overlong"]

    assert penalty("policy_tokens") == 0.0
    assert penalty("all_tokens") == -0.25


def test_a_buffer_larger_than_its_limit_is_refused():
    with raises(RecipeError, match="overlong_limit is 0"):
        RewardSettings(overlong_buffer=4096)


@given(st.sampled_from(("gated", "paper", "outcome")), st.integers(0, 12), st.booleans())
def test_turns_share_the_whole_bonus_and_no_wrong_answer_reaches_a_right_one(variant, count, right):
    settings = RewardSettings(variant=variant)
    reward = score_episode(episode(*calls(count), right=right), settings)
    assert reward.components["tool_bonus"] == approx(sum(reward.per_turn))
    assert (reward.total >= 1.0) is right
