"""Which attempts are trained: none with a void turn, and of right ones the cleanest."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from forethought.core.messages import Assistant, ToolReply, ToolStatus
from forethought.core.trajectory import Episode, Finish, Stop, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.learning.credit.selection import (
    SelectionSettings,
    answer_penalty,
    error_penalty,
    is_void,
    penalty,
    quota,
    select,
    void_turns,
)
from scripted import PROBLEM, call


def golden(name):
    return json.loads((Path(__file__).parents[2] / f"golden/{name}.json").read_text())


QUALITY, CURRICULUM = golden("20_trajectory_quality"), golden("17_data_curriculum")


def turn(text="", code=None, ok=True, fault="", finish=Finish.END_OF_TURN):
    """A turn that may hold a call, answered unless it is faulty."""
    if code is None:
        return Turn(message=Assistant(text=text), finish=finish)
    status = ToolStatus.OK if ok and not fault else ToolStatus.MODEL_ERROR
    return Turn(
        message=Assistant(text=text, calls=(call(code, fault=fault),)),
        finish=finish,
        replies=(ToolReply(call_id="call_0", name="python", text="", status=status),),
    )


def episode(*turns, right=True, answer="42", stop=Stop.ANSWERED, id="e"):
    verdict = Verdict.right(answer=answer) if right else Verdict.wrong(answer=answer)
    trajectory = Trajectory(agent="a", opening=(), turns=turns, stop=stop)
    return Episode(id=id, problem=PROBLEM, trajectories=(trajectory,), verdict=verdict)


@pytest.mark.parametrize("given", QUALITY["trajectories"], ids=lambda given: given["id"])
def test_void_turns_are_those_of_the_worked_example(given):
    expected = QUALITY["expected"]["per_trajectory"][given["id"]]
    turns = [turn(each["text"], each["code"], each["ok"]) for each in given["turns"]]
    answered = "boxed" in turns[-1].message.text
    stop = Stop.TOKEN_LIMIT if given["truncated"] else Stop.ANSWERED
    found = episode(
        *turns, right=given["outcome"] == 1, answer="1" if answered else None, stop=stop
    )
    assert list(void_turns(found)) == expected["void_turns"]
    assert is_void(found) is expected["loss_masked_simpletir"]


def test_a_call_that_cannot_run_and_an_answer_that_was_cut_off_are_void():
    assert void_turns(episode(turn(code="1", fault="no JSON"), turn("42"))) == (0,)
    assert void_turns(episode(turn(code="1", ok=False), turn("42"))) == ()
    assert is_void(episode(turn("42", finish=Finish.TOKEN_LIMIT), stop=Stop.TOKEN_LIMIT))
    assert is_void(episode(turn("42", finish=Finish.UNCLOSED_THINKING)))
    assert is_void(episode(turn("hm"), right=False, answer=None))
    assert not is_void(episode(turn(code="1"), right=False, answer=None, stop=Stop.TURN_LIMIT))
    assert not is_void(episode(turn("42"), right=True, answer=None))


def test_right_attempts_are_kept_by_how_clean_they_are_as_in_the_worked_example():
    case = CURRICULUM["roc"]
    calls = {0.0: (1, 0), 0.25: (4, 1), 0.5: (4, 2), 1.0: (1, 1)}
    episodes = []
    for name, expected in case["pos_penalty"]:
        made, failed = calls[expected]
        turns = [turn(code=str(n), ok=n >= failed) for n in range(made)]
        episodes.append(episode(*turns, turn(r"\boxed{42}"), id=name))
        assert penalty(episodes[-1]) == expected
    episodes += [episode(turn("41"), right=False, answer="41", id=name) for name in case["neg"]]
    settings = SelectionSettings(keep=case["down_sample_to"])
    rewards = [1.0 if each.right else -1.0 for each in episodes]
    kept = select(episodes, rewards, settings)
    assert [episodes[place].id for place in kept] == case["selected"]
    assert quota(5, 3, settings) == case["n_pos_rounded"]


def test_penalties_meet_the_worked_numbers():
    for case in CURRICULUM["roc_tool_error_penalty"]:
        assert error_penalty(case["errors"], case["calls"]) == approx(case["p"], abs=1e-12)
    for case in CURRICULUM["roc_format_penalty"]:
        assert answer_penalty(case["answer_tags"], case["turns"]) == approx(case["p"], abs=1e-12)


@pytest.mark.parametrize("status", ToolStatus)
def test_only_what_the_model_wrote_makes_a_call_fail(status):
    reply = ToolReply(call_id="call_0", name="python", text="", status=status)
    said = Turn(
        message=Assistant(text=r"\boxed{42}", calls=(call("1"),)),
        finish=Finish.END_OF_TURN,
        replies=(reply,),
    )
    failed = status in (ToolStatus.MODEL_ERROR, ToolStatus.TIMEOUT, ToolStatus.MEMORY)
    assert penalty(episode(said)) == float(failed)


def test_nothing_is_left_out_of_few_and_nothing_kept_of_equals():
    few = [episode(turn("x"), right=n > 0) for n in range(4)]
    assert select(few, [1.0] * 4, SelectionSettings()) == [0, 1, 2, 3]
    assert select(few, [1.0] * 4, SelectionSettings(keep=4)) == [0, 1, 2, 3]
    five = [episode(turn("x")) for _ in range(5)]
    assert select(five, [1.0] * 5, SelectionSettings(keep=4)) == []
    assert len(select(five, [1.0, 1.1, 1.0, 1.0, 1.0], SelectionSettings(keep=4))) == 4


def test_the_floors_decide_how_many_of_each_kind_are_kept():
    found = [
        quota(1 if floor == "keep_right" else 7, 7 if floor == "keep_right" else 1, settings)
        for floor in ("keep_right", "keep_wrong")
        for settings in (SelectionSettings(keep=4), SelectionSettings(keep=4, **{floor: 0}))
    ]
    assert found == [1, 0, 3, 4]


@given(st.integers(0, 20), st.integers(0, 20), st.integers(2, 12), st.integers(0, 4), st.data())
def test_as_many_are_kept_as_asked_and_both_kinds_where_there_are(right, wrong, keep, least, data):
    other = data.draw(st.integers(0, max(0, keep - least)))
    if right + wrong <= keep or least + other > keep or max(least, other) >= keep:
        return
    settings = SelectionSettings(keep=keep, keep_right=least, keep_wrong=other)
    kept = quota(right, wrong, settings)
    assert min(right, least) <= kept <= right
    assert min(wrong, other) <= keep - kept <= wrong
