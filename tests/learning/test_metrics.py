"""A round in numbers: what was measured, how tools were used, what was earned."""

from pytest import approx

from forethought.core.messages import ToolStatus
from forethought.core.trajectory import Group, Stop
from forethought.core.verdict import Verdict
from forethought.learning.lessons import score
from forethought.learning.metrics import summarise, summarise_lessons
from forethought.learning.rewards import RewardSettings
from scripted import PROBLEM, episode, graded, turn

OK, BAD = ToolStatus.OK, ToolStatus.MODEL_ERROR


def group(*episodes):
    return Group(id="g", problem=PROBLEM, episodes=episodes)


def test_a_round_by_hand():
    found = summarise(
        [
            group(
                episode(turns=[turn(OK, BAD, tokens=10, entropy=0.2), turn(tokens=2)]),
                episode(verdict=Verdict.wrong(), turns=[turn(tokens=8, entropy=1.0)]),
            ),
            group(
                episode(turns=[turn(OK, tokens=4)], stop=Stop.TURN_LIMIT),
                episode(verdict=Verdict.not_measured("broken"), turns=[turn(BAD, tokens=99)]),
            ),
        ]
    )
    assert found == approx(
        {
            "attempts/not_measured": 0.25,
            "accuracy": 2 / 3,
            "tool/rate": 2 / 3,
            "tool/calls": 1.0,
            "tool/success": 2 / 3,
            "tool/model_error": 1 / 3,
            "tool/timeout": 0.0,
            "tool/memory": 0.0,
            "tool/truncated": 0.0,
            "entropy": (10 * 0.2 + 2 * 0.5 + 8 * 1.0 + 4 * 0.5) / 24,
            "tokens/mean": 8.0,
            "unfinished": 1 / 3,
            "prefix_breaks": 0.0,
            "weights/version": 0.0,
        }
    )


def test_only_attempts_that_ran_into_a_limit_are_unfinished():
    ends = (Stop.ANSWERED, Stop.REFUSED, Stop.TURN_LIMIT, Stop.TOKEN_LIMIT, Stop.CONTEXT_FULL)
    found = summarise([group(*(episode(stop=stop) for stop in ends))])
    assert found["unfinished"] == 3 / 5


def test_each_way_in_which_calls_failed_is_told_as_a_share_of_all_calls():
    ended = (OK, OK, BAD, ToolStatus.TIMEOUT, ToolStatus.MEMORY, ToolStatus.TRUNCATED, OK, OK)
    found = summarise([group(episode(turns=[turn(*ended[:3])]), episode(turns=[turn(*ended[3:])]))])
    ways = ("success", "model_error", "timeout", "memory", "truncated")
    assert [found[f"tool/{way}"] for way in ways] == [1 / 2, 1 / 8, 1 / 8, 1 / 8, 1 / 8]


def test_success_of_tools_is_not_told_of_a_round_without_calls():
    found = summarise([group(episode(turns=[turn()]))])
    assert "tool/success" not in found
    assert (found["tool/rate"], found["tool/calls"]) == (0.0, 0.0)


def test_a_round_in_which_nothing_was_measured_says_only_that():
    assert summarise([graded("p", "??")]) == {"attempts/not_measured": 1.0}


def test_turns_without_tokens_have_no_entropy():
    assert summarise([group(episode(turns=[turn(tokens=0)]))])["entropy"] == 0.0


def lessons_of(*groups):
    return score(groups, RewardSettings(variant="outcome"))


def test_lessons_are_told_by_component_and_by_how_many_compare():
    found = summarise_lessons(lessons_of(graded("a", "++"), graded("b", "+-"), graded("c", "--")))
    outcome = {"": 0.0, "/share": 1.0, "/spread": 1.0, "/nonzero": 1.0, "/with_outcome": 1.0}
    nothing = {"": 0.0, "/share": 0.0, "/spread": 0.0, "/nonzero": 0.0}
    assert found == approx(
        {
            **{f"reward/outcome{name}": value for name, value in outcome.items()},
            **{f"reward/tool_bonus{name}": value for name, value in nothing.items()},
            **{f"reward/overlong{name}": value for name, value in nothing.items()},
            "reward/mean": 0.0,
            "groups/informative": 1 / 3,
            "groups/all_right": 1 / 3,
        }
    )


def test_there_is_nothing_to_tell_without_a_measured_attempt():
    assert summarise_lessons(lessons_of(graded("a", "??"))) == {}
