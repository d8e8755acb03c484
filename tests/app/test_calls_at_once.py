"""However much the attempts of a recipe call at once, none of it makes an attempt not measured."""

import asyncio
import json

import pytest

from app.small import refused
from app.test_code_problems import write_recipe as write_code_recipe
from forethought.agents.groups import attempt_groups
from forethought.agents.tool_agent import ToolAgent
from forethought.app.recipe import read_recipe
from forethought.core.errors import RecipeError
from forethought.tools.checking import AT_ONCE
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.turnstile import Turnstile
from scripted import PROBLEM, ExactGrader, ScriptedPolicy, call, says

SESSIONS = "--tool.state=session"
FEW = ("--compute.at_once=5", "--agent.calls_per_turn=4")


def test_a_line_shorter_than_what_attempts_may_call_is_refused_with_both_remedies(recipe):
    words = (
        r"tool\.queue = 19: each of compute\.at_once = 5 attempts may have 4 .*"
        r"\(agent\.calls_per_turn\).* raise tool\.queue to 20 or lower compute\.at_once"
    )
    with pytest.raises(RecipeError, match=words):
        read_recipe(recipe, (*FEW, "--tool.queue=19"))


def test_a_command_says_so_before_it_begins(recipe, capsys, tmp_path):
    words = ("--compute.at_once=1024", "--run", tmp_path / "run")
    assert "raise tool.queue to 8192" in refused(capsys, "collect", recipe, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        (*FEW, "--tool.queue=20"),
        (*FEW, "--tool.queue=5", SESSIONS),
        ("--compute.at_once=512",),
    ],
)
def test_as_long_a_line_is_enough_and_a_session_takes_one_place_in_it(recipe, words):
    assert read_recipe(recipe, words).tool.queue >= 1


@pytest.mark.parametrize("words", [(), (SESSIONS,), ("--agent.calls_per_turn=1",)])
def test_the_tests_of_an_answer_stand_in_line_too(tmp_path, words):
    recipe, few = write_code_recipe(tmp_path), ("--compute.at_once=5", *words)
    assert read_recipe(recipe, (*few, f"--tool.queue={5 * AT_ONCE}")).tool.queue == 5 * AT_ONCE
    with pytest.raises(RecipeError, match=rf"may have {AT_ONCE} programs"):
        read_recipe(recipe, (*few, f"--tool.queue={5 * AT_ONCE - 1}"))


def test_attempts_that_all_call_as_much_as_they_may_are_all_measured(recipe):
    words = (*FEW, "--tool.queue=20", "--tool.servers=1", "--tool.calls_per_server=1")
    chosen = read_recipe(recipe, words)
    programs = (call(json.dumps({"code": f"print({n})"}), id=f"call_{n}") for n in range(9))
    script = [says("", *programs), says("42")]

    async def run():
        async with PythonTool(chosen.tool) as tool:
            agent = ToolAgent(
                policy=ScriptedPolicy(script),
                tools=tool,
                grader=ExactGrader(),
                limits=chosen.agent,
            )
            return await attempt_groups(
                agent, [PROBLEM], size=5, seed=0, stage="rl/0", flow=chosen.compute.flow
            )

    (group,) = asyncio.run(run())
    assert len(group.measured) == 5
    for episode in group.measured:
        replies = episode.trajectories[0].replies
        assert [reply.text for reply in replies[:4]] == ["0", "1", "2", "3"]


def test_the_line_holds_every_call_while_servers_are_built_anew():
    async def run():
        line, passed = Turnstile(8, 20), []

        async def go(number):
            async with line.inside():
                passed.append(number)

        async with line.shut():
            calls = [asyncio.create_task(go(number)) for number in range(20)]
            await asyncio.sleep(0.01)
            assert passed == []
        await asyncio.gather(*calls)
        return passed

    assert asyncio.run(run()) == [*range(20)]
