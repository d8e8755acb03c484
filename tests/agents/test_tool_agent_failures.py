import asyncio

import pytest

from forethought.core.errors import PolicyError, RecipeError, SandboxError
from forethought.core.messages import ToolReply, ToolStatus
from forethought.core.trajectory import Stop
from forethought.core.verdict import Outcome
from scripted import (
    KEY,
    PROBLEM,
    BrokenGrader,
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


@pytest.mark.parametrize("error", [SandboxError("no sandbox"), OSError("no sandbox")])
def test_a_broken_sandbox_is_not_measured_and_the_calls_beside_it_still_run(error):
    async def answer(arguments):
        return error if arguments == "breaks" else arguments

    grader = ExactGrader()
    script = [CALL, says("", call("breaks", id="a"), call("fine", id="b")), ANSWER]
    episode = attempt(script, ScriptedTools(answer), grader)
    assert episode.verdict.outcome is Outcome.NOT_MEASURED
    assert "no sandbox" in episode.verdict.why
    trajectory = only(episode)
    assert trajectory.stop is Stop.FAILED
    assert "no sandbox" in trajectory.error
    assert len(trajectory.turns) == 2
    statuses = [reply.status for reply in trajectory.turns[1].replies]
    assert statuses == [ToolStatus.INFRASTRUCTURE, ToolStatus.OK]
    assert grader.graded == []


def test_a_broken_tool_is_recorded_with_the_place_that_broke():
    async def answer(arguments):
        raise KeyError("x")

    trajectory = only(attempt([CALL, ANSWER], ScriptedTools(answer)))
    assert trajectory.error.endswith("SandboxError: tool python: KeyError: 'x'\n")
    assert 'raise KeyError("x")' in trajectory.error
    assert __file__ in trajectory.error


@pytest.mark.parametrize("place", ["policy", "tool", "grader"])
@pytest.mark.parametrize(("error", "ends"), [(KeyError("x"), True), (ConnectionError("x"), False)])
def test_a_programs_fault_ends_the_run_where_that_is_asked_for(place, error, ends):
    async def answer(arguments):
        if place == "tool":
            raise error
        return arguments

    agent = tool_agent(
        ScriptedPolicy([CALL, error if place == "policy" else ANSWER]),
        ScriptedTools(answer),
        BrokenGrader(error) if place == "grader" else ExactGrader(),
        stop_at_faults=True,
    )
    if ends:
        with pytest.raises(KeyError, match="x"):
            asyncio.run(agent.attempt(PROBLEM, KEY))
    else:
        assert not asyncio.run(agent.attempt(PROBLEM, KEY)).measured


def test_a_reply_that_reports_infrastructure_is_not_measured():
    async def answer(arguments):
        status = ToolStatus.INFRASTRUCTURE
        return ToolReply(call_id="call_0", name="python", text="server gone", status=status)

    episode = attempt([CALL, ANSWER], ScriptedTools(answer))
    assert episode.verdict.why == "server gone"
    assert not episode.measured


@pytest.mark.parametrize("error", [PolicyError("engine gone"), ConnectionError("engine gone")])
def test_a_broken_policy_is_not_measured_and_keeps_the_turns_before(error):
    policy = ScriptedPolicy([CALL, error])
    episode = attempt(policy)
    assert not episode.measured
    assert "engine gone" in only(episode).error
    assert len(only(episode).turns) == 1
    assert only(episode).segments[0].ids == (1, 2, 7, 8, 9, 3)
    assert policy.conversations[0].left


def test_a_broken_grader_is_not_measured_and_keeps_the_whole_trajectory():
    episode = attempt([CALL, ANSWER], grader=BrokenGrader(ValueError("no such unit")))
    assert episode.verdict.why == "grader: ValueError: no such unit"
    assert only(episode).stop is Stop.FAILED
    assert len(only(episode).turns) == 2


def test_a_mistake_in_the_recipe_is_not_blamed_on_one_attempt():
    async def answer(arguments):
        return RecipeError("tool.url is empty: set it")

    with pytest.raises(RecipeError, match=r"tool\.url"):
        attempt([CALL, ANSWER], ScriptedTools(answer))


def test_cancelling_an_attempt_passes_through_and_leaves_the_conversation():
    policy = ScriptedPolicy([CALL, ANSWER])

    async def cancelled():
        running, stopped = asyncio.Event(), asyncio.Event()

        async def answer(arguments):
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        task = asyncio.create_task(tool_agent(policy, ScriptedTools(answer)).attempt(PROBLEM, KEY))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return stopped.is_set()

    assert asyncio.run(cancelled())
    assert policy.conversations[0].left
