import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forethought.agents.tool_agent import AgentSettings, ToolAgent
from forethought.core.errors import RecipeError
from forethought.core.messages import System, ToolReply, ToolSpec, ToolStatus, User
from forethought.core.problem import Problem
from forethought.core.trajectory import Finish, Group, Stop
from forethought.core.verdict import Outcome
from forethought.learning.metrics import summarise
from forethought.tools.settings import PythonSettings
from scripted import (
    KEY,
    PROBLEM,
    PYTHON,
    EchoTools,
    ExactGrader,
    ScriptedPolicy,
    ScriptedTools,
    attempt,
    call,
    only,
    says,
    tool_agent,
)

CALL = says("let me compute", call())
ANSWER = says("42")


def test_an_answer_ends_the_attempt_and_is_graded():
    episode = attempt([CALL, ANSWER])
    assert episode.id == "rl/0/0/p/3"
    assert episode.right
    assert only(episode).stop is Stop.ANSWERED
    assert [m.role for m in only(episode).messages] == ["user", "assistant", "tool", "assistant"]


def test_only_what_the_policy_said_is_marked_sampled():
    (segment,) = only(attempt([CALL, ANSWER])).segments
    assert segment.ids == (1, 2, 7, 8, 9, 3, 7, 8, 9)
    assert segment.sampled == (False,) * 2 + (True,) * 3 + (False,) + (True,) * 3


def test_a_turn_keeps_what_the_policy_reported():
    (turn,) = only(attempt([says("42", tokens=5, entropy=0.75)])).turns
    assert (turn.tokens, turn.entropy, turn.weight_version, turn.seconds) == (5, 0.75, 1, 0.25)
    assert turn.temperature == 1.0


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        (Finish.TOKEN_LIMIT, Stop.TOKEN_LIMIT),
        (Finish.CONTEXT_FULL, Stop.CONTEXT_FULL),
        (Finish.REFUSED, Stop.REFUSED),
        (Finish.UNCLOSED_THINKING, Stop.ANSWERED),
    ],
)
def test_a_turn_that_did_not_end_well_ends_the_attempt_without_running_its_calls(finish, stop):
    tools = EchoTools()
    episode = attempt([CALL, says("half", call("never"), finish=finish)], tools)
    assert only(episode).stop is stop
    assert only(episode).turns[-1].finish is finish
    assert [one.arguments for one in tools.calls] == ["6*7"]
    assert episode.verdict.outcome is Outcome.WRONG


def test_a_reply_that_fills_the_context_is_not_a_clean_finish():
    episode = attempt([CALL, says(finish=Finish.CONTEXT_FULL, tokens=0)])
    assert only(episode).stop is Stop.CONTEXT_FULL
    assert only(episode).sampled_tokens == 3


@pytest.mark.parametrize(
    ("script", "limits", "stop", "truncated"),
    [
        ([CALL, says("half", finish=Finish.TOKEN_LIMIT)], {}, Stop.TOKEN_LIMIT, True),
        ([CALL, says(finish=Finish.CONTEXT_FULL, tokens=0)], {}, Stop.CONTEXT_FULL, True),
        ([CALL, ANSWER], {}, Stop.ANSWERED, False),
        ([CALL] * 9, {"max_turns": 2}, Stop.TURN_LIMIT, True),
        ([CALL] * 9, {"max_tokens": 9}, Stop.TOKEN_LIMIT, True),
        ([CALL] * 9, {"max_seconds": 1e-9}, Stop.TIME_LIMIT, True),
    ],
)
def test_whether_an_attempt_was_cut_off_is_one_field_that_every_reader_reads(
    script, limits, stop, truncated
):
    episode = attempt(script, **limits)
    assert (only(episode).stop, only(episode).truncated) == (stop, truncated)
    group = Group(id="g", problem=PROBLEM, episodes=(episode,))
    assert summarise([group])["unfinished"] == episode.truncated == truncated


def test_an_attempt_whose_time_is_up_makes_no_further_call():
    seconds = iter((100.0, 130.0, 159.5, 160.5))  # its beginning, then after each turn
    tools = EchoTools()
    agent = ToolAgent(
        policy=ScriptedPolicy([CALL] * 9),
        tools=tools,
        grader=ExactGrader(),
        limits=AgentSettings(max_seconds=60),
        clock=lambda: next(seconds),
    )
    trajectory = only(asyncio.run(agent.attempt(PROBLEM, KEY)))
    assert trajectory.stop is Stop.TIME_LIMIT
    assert len(tools.calls) == 2
    assert trajectory.turns[-1].replies == ()


def timed(script, limits, tools):
    """The trajectory of an agent that takes eleven days for each turn."""
    seconds = iter(range(0, 10**9, 10**6))
    agent = ToolAgent(
        policy=ScriptedPolicy(script),
        tools=tools,
        grader=ExactGrader(),
        limits=limits,
        clock=lambda: next(seconds),
    )
    return asyncio.run(agent.attempt(PROBLEM, KEY))


def test_an_answer_counts_however_late_it_comes():
    assert timed([ANSWER], AgentSettings(max_seconds=1), EchoTools()).right


def test_unless_asked_for_calls_and_tokens_end_attempts_and_no_clock_does_so_that_equal_runs_are():
    tools = EchoTools()
    assert timed([CALL] * 15 + [ANSWER], AgentSettings(), tools).right
    assert only(timed([CALL] * 99, AgentSettings(), tools)).stop is Stop.TURN_LIMIT
    assert len(tools.calls) == 15 + 16
    long = says("let me compute", call(), tokens=10_240)
    assert only(timed([long] * 99, AgentSettings(), tools)).stop is Stop.TOKEN_LIMIT
    assert len(tools.calls) == 15 + 16 + 1
    assert 0 < PythonSettings().wall_seconds < 60  # each of those calls


def test_a_policy_that_always_calls_is_stopped_after_the_last_allowed_turn():
    tools = EchoTools()
    episode = attempt([CALL] * 9, tools, max_turns=4)
    assert only(episode).stop is Stop.TURN_LIMIT
    assert len(tools.calls) == 4
    assert only(episode).turns[-1].replies == ()


def test_an_agent_without_settings_may_take_sixteen_turns_with_calls():
    tools = EchoTools()
    assert only(attempt([CALL] * 99, tools)).stop is Stop.TURN_LIMIT
    assert len(tools.calls) == 16


def test_an_agent_without_settings_may_say_twenty_thousand_tokens():
    policy = ScriptedPolicy([says("", call(), tokens=2000)] * 99)
    trajectory = only(attempt(policy))
    assert trajectory.stop is Stop.TOKEN_LIMIT
    assert policy.conversations[0].allowed[0] == 20_480
    assert len(trajectory.turns) == 11


def test_the_policy_may_answer_after_its_last_tool_turn():
    assert attempt([CALL, CALL, ANSWER], max_turns=2).right


def test_no_tool_turn_is_allowed_when_the_limit_is_zero():
    tools = EchoTools()
    assert only(attempt([CALL], tools, max_turns=0)).stop is Stop.TURN_LIMIT
    assert tools.calls == []


def test_the_token_limit_is_one_budget_for_all_turns():
    policy = ScriptedPolicy([CALL, CALL, ANSWER])
    assert attempt(policy, max_tokens=10).right
    assert policy.conversations[0].allowed == [10, 7, 4]


def test_a_call_that_uses_the_last_token_ends_the_attempt_unrun():
    tools = EchoTools()
    assert only(attempt([CALL, CALL], tools, max_tokens=6)).stop is Stop.TOKEN_LIMIT
    assert len(tools.calls) == 1


def test_an_answer_that_uses_the_last_token_is_an_answer():
    assert attempt([CALL, ANSWER], max_tokens=6).right


def test_a_faulty_call_is_answered_with_its_fault_and_never_run():
    tools = EchoTools()
    bad = call("{", id="call_0", fault="the arguments are not JSON")
    turns = only(attempt([says("", bad, call(id="call_1")), ANSWER], tools)).turns
    first, second = turns[0].replies
    assert (first.call_id, first.status) == ("call_0", ToolStatus.MODEL_ERROR)
    assert first.text == "the arguments are not JSON"
    assert (second.call_id, second.status) == ("call_1", ToolStatus.OK)
    assert [one.id for one in tools.calls] == ["call_1"]


def test_calls_beyond_the_limit_of_a_turn_are_answered_and_not_run():
    tools = EchoTools()
    calls = [call(str(n), id=f"call_{n}") for n in range(4)]
    replies = only(attempt([says("", *calls), ANSWER], tools, calls_per_turn=2)).replies
    assert [one.arguments for one in tools.calls] == ["0", "1"]
    assert [reply.call_id for reply in replies] == [one.id for one in calls]
    assert [reply.status for reply in replies[2:]] == [ToolStatus.MODEL_ERROR] * 2
    assert "at most 2 calls" in replies[3].text


def test_calls_of_a_turn_run_together_and_are_answered_in_their_order():
    async def both() -> list[str]:
        second_ran = asyncio.Event()

        async def answer(arguments):
            if arguments == "waits":
                await asyncio.wait_for(second_ran.wait(), timeout=30)
            else:
                second_ran.set()
            return arguments

        script = [says("", call("waits", id="a"), call("frees", id="b")), ANSWER]
        episode = await tool_agent(script, ScriptedTools(answer)).attempt(PROBLEM, KEY)
        return [reply.text for reply in only(episode).replies]

    assert asyncio.run(both()) == ["waits", "frees"]


def test_the_policy_hears_what_the_tools_replied():
    policy = ScriptedPolicy([CALL, ANSWER])
    attempt(policy)
    assert [[reply.text for reply in heard] for heard in policy.conversations[0].heard] == [["6*7"]]


def test_a_programs_failure_is_a_reply_and_the_attempt_goes_on():
    async def answer(arguments):
        return ToolReply(call_id="call_0", name="python", text="", status=ToolStatus.TIMEOUT)

    episode = attempt([CALL, ANSWER], ScriptedTools(answer))
    assert episode.right
    assert only(episode).replies[0].status is ToolStatus.TIMEOUT


def test_only_the_tools_that_the_problem_allows_are_offered_and_run():
    search = ToolSpec(name="search", description="Search.", parameters={"type": "object"})
    tools = EchoTools(specs=(PYTHON, search))
    policy = ScriptedPolicy([says("", call(name="search")), ANSWER])
    (reply,) = only(attempt(policy, tools)).replies
    assert policy.conversations[0].offered == ("python",)
    assert reply.status is ToolStatus.MODEL_ERROR
    assert "'search'; the tools are: python" in reply.text
    assert tools.calls == []


def test_a_problem_without_tools_offers_none():
    policy = ScriptedPolicy([ANSWER])
    attempt(policy, problem=Problem(id="p", prompt="6 * 7?", answer="42", tools=()))
    assert policy.conversations[0].offered == ()


def test_a_problem_whose_tools_are_all_unknown_is_refused_with_both_names():
    problem = Problem(id="p", prompt="6 * 7?", answer="42", tools=("code_interpreter",))
    with pytest.raises(RecipeError, match="code_interpreter, but the agent has python"):
        attempt([ANSWER], problem=problem)


@pytest.mark.parametrize(
    ("limits", "opening"),
    [
        ({}, (User(text="6 * 7?"),)),
        ({"instruction": "Think first."}, (User(text="6 * 7?\nThink first."),)),
        ({"instruction": "Solve {question} now."}, (User(text="Solve 6 * 7? now."),)),
        ({"system": "Be brief."}, (System(text="Be brief."), User(text="6 * 7?"))),
    ],
)
def test_the_opening_is_the_question_with_what_the_settings_add(limits, opening):
    policy = ScriptedPolicy([ANSWER])
    assert only(attempt(policy, **limits)).opening == opening
    assert policy.conversations[0].opening == opening


def test_braces_in_a_question_are_left_alone():
    problem = Problem(id="p", prompt="{question} {0}", answer="42")
    opening = only(attempt([ANSWER], problem=problem, instruction="A: {question}")).opening
    assert opening == (User(text="A: {question} {0}"),)


@pytest.mark.parametrize(
    "limits", [{"max_turns": -1}, {"max_tokens": 0}, {"calls_per_turn": 0}, {"max_seconds": -1}]
)
def test_limits_that_leave_nothing_to_do_are_refused(limits):
    with pytest.raises(ValidationError):
        AgentSettings(**limits)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(1, 40),
)
def test_an_attempt_keeps_within_its_limits_whatever_is_said(turns, max_turns, max_tokens):
    tools = EchoTools()
    script = [
        says("", *(call(id=f"call_{turn}_{n}") for n in range(calls)), tokens=tokens)
        for turn, (calls, tokens) in enumerate([*turns, (0, 1)])
    ]
    trajectory = only(attempt(script, tools, max_turns=max_turns, max_tokens=max_tokens))
    answered = [turn for turn in trajectory.turns if turn.replies]
    assert len(answered) <= max_turns
    assert sum(turn.tokens for turn in answered) < max_tokens
    for turn in answered:
        assert [r.call_id for r in turn.replies] == [one.id for one in turn.message.calls]
    assert len(tools.calls) == len(trajectory.replies)
