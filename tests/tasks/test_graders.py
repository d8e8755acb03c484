import asyncio

import pytest

from forethought.core.messages import Assistant, ToolCall, ToolReply
from forethought.core.problem import Problem
from forethought.core.trajectory import Finish, Stop, Trajectory, Turn
from forethought.core.verdict import Outcome
from forethought.tasks.graders import BoxedGrader

PROBLEM = Problem(id="p", prompt="6 * 7?", answer="42")
CALL = ToolCall(id="call_0", name="python", arguments='{"code": "print(6*7)"}')


def said(text, *calls, thinking="", replies=()):
    message = Assistant(text=text, thinking=thinking, calls=calls)
    return Turn(message=message, finish=Finish.END_OF_TURN, replies=replies)


def grade(*turns, stop=Stop.ANSWERED, error=""):
    trajectory = Trajectory(agent="a", opening=(), turns=turns, stop=stop, error=error)
    return asyncio.run(BoxedGrader().grade(PROBLEM, trajectory))


def test_a_final_box_with_the_value_is_right():
    verdict = grade(said(r"so \boxed{42.0}"))
    assert (verdict.outcome, verdict.score, verdict.answer) == (Outcome.RIGHT, 1.0, "42.0")


def test_a_final_box_with_another_value_is_wrong_and_says_both():
    verdict = grade(said(r"so \boxed{41}"))
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.0)
    assert (verdict.answer, verdict.why) == ("41", "41 is not 42")


def test_what_the_tool_prints_is_not_an_answer():
    reply = ToolReply(call_id="call_0", name="python", text=r"\boxed{42}")
    verdict = grade(said("", CALL, replies=(reply,)), said("that was it."))
    assert (verdict.outcome, verdict.answer) == (Outcome.WRONG, None)
    assert "no final answer" in verdict.why


def test_what_was_only_thought_is_not_an_answer():
    assert grade(said("done.", thinking=r"\boxed{42}")).answer is None


def test_a_message_that_still_calls_is_not_final():
    verdict = grade(said(r"\boxed{42}", CALL), stop=Stop.TURN_LIMIT)
    assert verdict.answer is None
    assert "turn_limit" in verdict.why


def test_only_the_final_message_counts():
    assert grade(said(r"\boxed{42}"), said("or not.")).answer is None


def test_a_trajectory_without_turns_is_wrong():
    assert grade(stop=Stop.CONTEXT_FULL).outcome is Outcome.WRONG


@pytest.mark.parametrize("stop", [Stop.TOKEN_LIMIT, Stop.CONTEXT_FULL])
def test_an_answer_counts_even_if_the_message_was_cut_after_it(stop):
    assert grade(said(r"\boxed{42} and"), stop=stop).outcome is Outcome.RIGHT


def test_a_failed_attempt_is_not_measured_whatever_it_said():
    verdict = grade(said(r"\boxed{42}"), stop=Stop.FAILED, error="the engine died")
    assert (verdict.outcome, verdict.why) == (Outcome.NOT_MEASURED, "the engine died")
