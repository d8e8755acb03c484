"""What the way to an answer earns and costs, and the bound that keeps right above wrong."""

import json
from math import nan, sqrt
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx, mark, raises

from forethought.core.errors import RecipeError
from forethought.core.messages import ToolStatus
from forethought.core.problem import Problem
from forethought.core.verdict import Verdict
from forethought.learning.rewards import RewardSettings, score_episode, score_group
from forethought.learning.rewards.calls import unmended
from forethought.learning.rewards.component import Component, bounded
from forethought.learning.rewards.outcome import outcome_gap, search_outcome
from forethought.learning.rewards.turns import retrieval
from learning.rewards.attempts import (
    PROBLEM,
    broken,
    calls,
    episode,
    failed,
    group,
    reward,
    team,
    turn,
)

GOLDEN = Path(__file__).parents[2] / "golden"
SEARCH = json.loads((GOLDEN / "09_turn_level.json").read_text())
QUALITY = json.loads((GOLDEN / "20_trajectory_quality.json").read_text())
FREE = {"variant": "outcome"}
"""Calls earn nothing, so that only the process parts are seen."""
DONE = turn(text="done")


def parts(attempt, penalties=None, process=None):
    """The process parts of an attempt, without a bound."""
    found = reward(attempt, penalties=penalties or {}, process={"most": 99.0} | (process or {}))
    named = {**found.components}
    for name in ("outcome", "tool_bonus", "overlong"):
        del named[name]
    return named


def by_turn(attempt, **process):
    """What each turn earns, without a bound and without a bonus for calls."""
    return reward(attempt, **FREE, process={"most": 99.0} | process).per_turn


def test_no_part_is_on_by_default():
    assert parts(episode(broken("x"), failed("print(y)"), DONE)) == {}


def test_an_attempt_without_an_answer_that_can_be_read_loses_the_format_penalty():
    weights = {"format": 0.2}
    assert parts(episode(DONE), weights) == {"format": -0.2}
    assert parts(episode(DONE, answer="5"), weights) == {"format": 0.0}
    assert parts(episode(DONE, right=True), weights) == {"format": 0.0}


def test_each_call_that_cannot_be_parsed_costs():
    attempt = episode(broken("x", "y"), turn("print(1)"), broken("z"), DONE)
    found = reward(attempt, **FREE, penalties={"parse": 0.01})
    assert found.components["parse"] == approx(-0.03)
    assert found.per_turn == approx((-0.02, 0.0, -0.01, 0.0))
    assert found.turn_parts == {"parse": approx((-0.02, 0.0, -0.01, 0.0))}


def test_an_exception_costs_unless_a_changed_call_follows():
    mended = episode(failed("print(x)"), turn("print(1)"), DONE)
    left = episode(failed("print(x)"), DONE)
    again = episode(failed("print(x)"), failed("print( x )"), turn("print(1)"), DONE)
    weights = {"exception": 0.1}
    assert parts(mended, weights) == {"exception": approx(0.0)}
    assert parts(left, weights) == {"exception": -0.1}
    assert unmended(again) == (1, 0, 0, 0)


@mark.parametrize("status", [ToolStatus.TIMEOUT, ToolStatus.MEMORY, ToolStatus.MODEL_ERROR])
def test_what_a_program_ran_into_is_an_exception(status):
    assert unmended(episode(turn("print(1)", status=status), DONE)) == (1, 0)


@mark.parametrize("status", [ToolStatus.OK, ToolStatus.TRUNCATED, ToolStatus.INFRASTRUCTURE])
def test_what_the_model_did_not_break_is_no_exception(status):
    assert unmended(episode(turn("print(1)", status=status), DONE)) == (0, 0)


def test_a_call_that_never_ran_is_no_exception():
    assert unmended(episode(broken("x"), DONE)) == (0, 0)


def test_another_agents_call_mends_nothing():
    assert unmended(team([failed("print(x)")], [turn("print(1)")])) == (1, 0)


@mark.parametrize("worked", QUALITY["trajectories"], ids=lambda one: one["id"])
def test_unmended_exceptions_are_those_of_the_worked_trajectories(worked):
    turns = [
        turn(text=one["text"])
        if one["code"] is None
        else turn(one["code"], status=ToolStatus.OK if one["ok"] else ToolStatus.MODEL_ERROR)
        for one in worked["turns"]
    ]
    figures = QUALITY["expected"]["per_trajectory"][worked["id"]]
    changed = figures["error_recovered"]
    assert sum(unmended(episode(*turns))) == figures["error_opportunities"] - changed
    assert (sum(unmended(episode(*turns))) > 0) is (figures["identical_retry"] > 0)


def test_going_on_without_a_tool_costs_from_a_limit_on():
    weights = {"thinking": 0.4, "thinking_limit": 100}

    def lost(*turns):
        return parts(episode(*turns), weights)["thinking"]

    assert lost(turn(tokens=100)) == 0.0
    assert lost(turn(tokens=150)) == approx(-0.2)
    assert lost(turn(tokens=900)) == approx(-0.4)
    assert lost(turn("print(1)", tokens=90), turn(tokens=90)) == 0.0
    assert lost(broken("print(1)"), turn(tokens=0)) == 0.0


def test_a_call_that_did_not_run_does_not_interrupt_thinking():
    weights = {"thinking": 0.4, "thinking_limit": 100}
    said = turn("x", tokens=90, status=ToolStatus.MODEL_ERROR, fault="not JSON")
    assert parts(episode(said, turn(tokens=60)), weights) == {"thinking": approx(-0.2)}


def test_thinking_costs_nothing_where_there_is_no_tool():
    plain = Problem(id="p", prompt="?", answer="4", tools=())
    weights = {"thinking": 0.4, "thinking_limit": 1}
    assert parts(episode(turn(tokens=99), problem=plain), weights) == {"thinking": 0.0}


def test_a_thinking_penalty_without_a_limit_is_refused():
    with raises(RecipeError, match=r"penalties\.thinking = 0\.1: .*thinking_limit"):
        RewardSettings.model_validate({"penalties": {"thinking": 0.1}})


def test_execution_pays_the_rate_of_success_however_many_calls_there_are():
    half = episode(turn("a()"), failed("b()"), DONE)
    assert by_turn(half, execution=0.2) == approx((0.1, 0.0, 0.0))
    for count in (1, 7):
        assert sum(by_turn(episode(*calls(count)), execution=0.2)) == approx(0.2)
    assert by_turn(episode(DONE), execution=0.2) == (0.0,)


def test_a_reply_with_the_answer_in_it_is_a_hit():
    problem = Problem(id="p", prompt="who?", answer="Ada  Lovelace")
    hit = turn("look", reply="It was ada\nlovelace, 1843.")
    assert by_turn(episode(hit, DONE, problem=problem), retrieval=0.3) == approx((0.3, 0.0))


@mark.parametrize("text", ["14", "4.5", "0.4", "x4", "40"])
def test_an_answer_within_another_word_or_number_is_no_hit(text):
    assert retrieval(episode(turn("a()", reply=text))) == (0.0,)


@mark.parametrize("text", ["4", "= 4.", "(4)", "-4, 4"])
def test_an_answer_that_stands_alone_is_a_hit(text):
    assert retrieval(episode(turn("a()", reply=text))) == (1.0,)


def test_a_program_that_prints_what_it_was_given_has_found_nothing():
    assert retrieval(episode(turn("print(4)"), turn("print(2 * 2)"))) == (0.0, 0.0)
    assert retrieval(episode(turn("print(2 * 2)"), turn("print(4)"))) == (1.0, 0.0)


def test_the_same_call_hits_once_and_a_failed_one_never():
    assert retrieval(episode(turn("a()"), turn("a()"), turn("b()"))) == (1.0, 0.0, 1.0)
    assert retrieval(episode(turn("a()", status=ToolStatus.TIMEOUT))) == (0.0,)


@mark.parametrize("worked", SEARCH["search_agent_rewards"]["intermediate"])
def test_turns_of_a_search_agent_earn_the_worked_numbers(worked):
    weights = {
        "retrieval": 0.3,
        "well_formed": 0.1,
        "malformed": 0.2,
        "call_cost": SEARCH["search_agent_rewards"]["lambda_s"],
    }
    earlier = [
        turn(f"find({number})", reply="nothing")
        for number in range(worked["cumulative_searches"] - 1)
    ]
    reply = "4" if worked["retrieval_hit"] else "nothing"
    last = turn("find('it')", reply=reply, fault="" if worked["format_ok"] else "cut off")
    found = by_turn(episode(*earlier, last), **weights)[-1]
    assert found == approx(worked["R_I"], abs=SEARCH["tolerance"], rel=0)


@mark.parametrize("worked", SEARCH["search_agent_rewards"]["outcome"])
def test_the_outcome_of_a_search_agent_is_the_worked_one(worked):
    found = search_outcome(exact=bool(worked["exact_match"]), readable=bool(worked["format_ok"]))
    assert found == worked["R_O"]


def test_the_search_variant_tells_a_wrong_answer_from_none():
    def earned(**attempt):
        return reward(episode(*calls(2), **attempt), variant="search").total

    assert earned(right=True, answer="4") == 1.0
    assert earned(answer="5") == approx(0.2)
    assert earned() == -1.0


def test_partial_credit_is_paid_by_its_weight_and_never_to_a_right_answer():
    def earned(verdict, **settings):
        attempt = episode(DONE, right=verdict.score == 1)
        graded = type(attempt)(
            id="p/0", problem=PROBLEM, trajectories=attempt.trajectories, verdict=verdict
        )
        return reward(graded, **settings).components.get("partial")

    assert earned(Verdict.wrong(score=0.75)) is None
    assert earned(Verdict.wrong(score=0.75), partial=0.8) == approx(0.6)
    assert earned(Verdict.right(), partial=0.8) == 0.0


def test_a_rare_answer_of_a_group_earns_more_whatever_its_spelling():
    attempts = [
        episode(DONE, answer=answer, number=number)
        for number, answer in enumerate(["5", "5.0", "6", None])
    ]
    free = RewardSettings.model_validate(FREE | {"process": {"most": 9.0, "exploration": 0.4}})
    found = [each.components["exploration"] for each in score_group(group(*attempts), free)]
    assert found == approx([0.4 / sqrt(2), 0.4 / sqrt(2), 0.4, 0.0])


def test_what_one_attempt_cannot_tell_needs_its_group():
    with raises(ValueError, match="use score_group"):
        reward(episode(DONE), process={"exploration": 0.1})
    judged = {"judge": {"endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}}
    with raises(ValueError, match="use score_group"):
        reward(episode(DONE), **judged)
    with raises(ValueError, match="judge_groups"):
        score_group(group(episode(DONE)), RewardSettings.model_validate(judged))


def test_a_group_earns_what_its_measured_attempts_earn_alone():
    lost = type(episode())(
        id="g/9", problem=PROBLEM, trajectories=(), verdict=Verdict.not_measured("broke")
    )
    attempts = episode(*calls(3)), lost, episode(*calls(1), right=True)
    alone = [score_episode(each, RewardSettings()) for each in (attempts[0], attempts[2])]
    assert list(score_group(group(*attempts), RewardSettings())) == alone


def judged_by(weight):
    """Rewards of execution and of a judge."""
    endpoint = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    judge = {"endpoint": endpoint, "weight": weight}
    return RewardSettings.model_validate(FREE | {"process": {"execution": 0.1}, "judge": judge})


def test_a_judges_scores_are_paid_by_turn_and_by_their_weight():
    scores = {"gcd-1/0": (0.5, -0.25)}
    (found,) = score_group(group(episode(*calls(1))), judged_by(weight=0.5), scores)
    assert found.turn_parts["judge"] == approx((0.25, -0.125))
    assert found.components["judge"] == approx(0.125)
    assert found.per_turn == approx((0.35, -0.125))
    (less,) = score_group(group(episode(*calls(1))), judged_by(weight=0.1), scores)
    assert less.components["judge"] == approx(0.025)


@mark.parametrize("judged", [{}, {"gcd-1/0": (0.5, nan)}])
def test_an_attempt_that_could_not_be_judged_has_an_unknown_reward_and_not_0(judged):
    (found,) = score_group(group(episode(*calls(1))), judged_by(weight=0.5), judged)
    assert found.total != found.total
    assert found.components["execution"] == approx(0.1)
    assert found.per_turn[1] != found.per_turn[1]


def test_parts_that_exceed_their_bound_shrink_alike_by_turn_and_altogether():
    attempt = episode(turn("a()"), turn("b()"), DONE)
    found = reward(attempt, **FREE, process={"retrieval": 1.0, "execution": 1.0})
    assert found.components["retrieval"] == approx(0.5 * 2 / 3)
    assert found.turn_parts["retrieval"] == approx((0.5 / 3, 0.5 / 3, 0.0))
    assert found.components["execution"] == approx(0.5 / 3)


def test_turns_that_cancel_each_other_out_do_not_pass_the_bound():
    loud = Component.of_turns("a", (3.0, -3.0), 1.0)
    (found,) = bounded([loud], 0.6)
    assert found.by_turn == approx((0.3, -0.3))


@mark.parametrize(
    ("reward_settings", "gap"),
    [
        ({}, 1.6),
        (FREE, 2.0),
        ({"variant": "released"}, 2.1),
        ({"variant": "search"}, 0.8),
        ({"partial": 0.5}, 1.1),
        ({"overlong_buffer": 5, "overlong_limit": 9}, 0.6),
        ({"wrong_ceiling": 1.0, "bonus_cap": 40}, 0.0),
    ],
)
def test_the_gap_lies_between_the_best_wrong_and_the_worst_right_answer(reward_settings, gap):
    assert outcome_gap(RewardSettings.model_validate(reward_settings)) == approx(gap)


WEIGHT = st.floats(0, 5)
TURNS = st.lists(
    st.one_of(
        st.sampled_from(["print(1)", "print(2 * 2)", "x"]).map(turn),
        st.sampled_from(["print(x)", "print(y)"]).map(failed),
        st.just(broken("print(1)")),
    ),
    max_size=6,
)
EVERYTHING = st.fixed_dictionaries(
    {
        "variant": st.sampled_from(["gated", "paper", "released", "outcome", "search"]),
        "partial": st.floats(0, 0.3),
        "overlong_buffer": st.sampled_from([0, 5]),
        "overlong_limit": st.just(10),
        "overlong_factor": st.floats(0, 0.4),
        "penalties": st.fixed_dictionaries(
            {
                **dict.fromkeys(("format", "parse", "exception", "thinking"), WEIGHT),
                "thinking_limit": st.just(3),
            }
        ),
        "process": st.fixed_dictionaries(
            dict.fromkeys(
                (
                    "execution",
                    "retrieval",
                    "well_formed",
                    "malformed",
                    "steps",
                    "call_cost",
                    "exploration",
                    "coverage",
                    "verification",
                ),
                WEIGHT,
            )
        ),
    }
)


@settings(max_examples=200, deadline=None)
@given(EVERYTHING, TURNS, TURNS, st.integers(0, 20), st.floats(0, 1))
def test_no_wrong_answer_beats_a_right_one_whatever_the_weights(
    recipe, right_turns, wrong_turns, length, score
):
    chosen = RewardSettings.model_validate(recipe)
    right = episode(*right_turns, turn(tokens=length), right=True, answer="4")
    wrong = type(right)(
        id="gcd-1/1",
        problem=PROBLEM,
        trajectories=episode(*wrong_turns, DONE).trajectories,
        verdict=Verdict.wrong("5", score=score),
    )
    best, worst = score_group(group(right, wrong), chosen)
    assert best.total > worst.total
    assert sum(best.per_turn) == approx(
        best.components["tool_bonus"] + sum(best.components[name] for name in best.turn_parts)
    )
