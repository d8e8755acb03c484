import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from forethought.agents.demonstrations.programs import broken, guarded
from forethought.agents.demonstrators import (
    Demonstrator,
    DemonstratorSettings,
    can_show,
    worth_imitating,
)
from forethought.core.errors import RecipeError, SandboxError
from forethought.core.messages import System, ToolReply, ToolStatus, User
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Stop
from forethought.core.verdict import Outcome
from forethought.tasks.graders import BoxedGrader
from forethought.tasks.practice.problems import FAMILIES, practice_problems
from forethought.tasks.settings import PracticeSettings

GCD = Problem(
    id="gcd-1",
    prompt="what is the gcd of 8 and 12?",
    answer="4",
    data={
        "plan": "use gcd from math.",
        "program": "import math\nprint(math.gcd(8,12))",
        "check": "8%x==12%x==0",
    },
)
BARE = Problem(id="bare", prompt="6 * 7?", answer="42")


@dataclass
class SubprocessTools:
    """Runs each program in a Python of its own."""

    specs: tuple = ()
    calls: list = field(default_factory=list)

    async def call(self, call):
        self.calls.append(call)
        code = json.loads(call.arguments)["code"]
        run = subprocess.run(
            [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
        )
        status = ToolStatus.OK if run.returncode == 0 else ToolStatus.MODEL_ERROR
        text = run.stdout + run.stderr
        return ToolReply(call_id=call.id, name=call.name, text=text, status=status)


@dataclass
class ScriptedTools:
    """Answers every call with one text and status, or raises an error."""

    text: str = ""
    status: ToolStatus = ToolStatus.OK
    error: Exception | None = None
    specs: tuple = ()

    async def call(self, call):
        if self.error is not None:
            raise self.error
        return ToolReply(call_id=call.id, name=call.name, text=self.text, status=self.status)


class BrokenGrader:
    async def grade(self, problem, trajectory):
        raise ZeroDivisionError("no scale")


def show(problem=GCD, style="direct", tools=None, rollout=0, **parts):
    settings = DemonstratorSettings(styles={style: 1.0})
    teacher = Demonstrator(
        **{"tools": tools or SubprocessTools(), "grader": BoxedGrader(), "settings": settings}
        | parts
    )
    key = RolloutKey(seed=0, group=f"sft/0/{problem.id}", rollout=rollout)
    return asyncio.run(teacher.attempt(problem, key))


def spoken(episode):
    return [turn.message.text for turn in episode.trajectories[0].turns]


def run_programs(episode):
    turns = episode.trajectories[0].turns
    return [json.loads(call.arguments)["code"] for turn in turns for call in turn.message.calls]


def test_a_direct_demonstration_plans_calls_and_answers():
    episode = show()
    (trajectory,) = episode.trajectories
    assert episode.right
    assert (episode.id, trajectory.stop) == ("sft/0/gcd-1/0", Stop.ANSWERED)
    assert trajectory.opening == (User(text=GCD.prompt),)
    assert spoken(episode) == ["use gcd from math.", "so \\boxed{4}"]
    assert run_programs(episode) == [GCD.data["program"]]
    assert [reply.text for reply in trajectory.replies] == ["4\n"]
    assert worth_imitating(trajectory) == (True, True)


def test_a_demonstration_holds_words_and_no_tokens():
    (trajectory,) = show().trajectories
    assert trajectory.segments == ()
    assert trajectory.sampled_tokens == 0


def test_a_deliberate_demonstration_is_careful_before_the_same_call():
    episode = show(style="deliberate")
    assert episode.right
    assert spoken(episode)[0].startswith("i should be careful. read the numbers. use gcd")
    assert run_programs(episode) == [GCD.data["program"]]


def test_a_guarded_demonstration_runs_a_program_that_checks_itself():
    episode = show(style="guarded")
    assert episode.right
    assert run_programs(episode) == ["import math\nx=math.gcd(8,12)\nassert 8%x==12%x==0\nprint(x)"]


def test_a_recovering_demonstration_meets_a_real_error_names_it_and_mends_it():
    faults = set()
    for rollout in range(12):
        episode = show(style="recovering", rollout=rollout)
        (trajectory,) = episode.trajectories
        wrong, right = trajectory.replies
        assert episode.right
        assert (wrong.status, right.status) == (ToolStatus.MODEL_ERROR, ToolStatus.OK)
        assert worth_imitating(trajectory) == (False, True, True)
        assert [reply.call_id for reply in trajectory.replies] == ["call_0", "call_1"]
        faults.add((spoken(episode)[1], wrong.text.strip().split("\n")[-1].split(":")[0]))
    assert faults == {
        ("a bracket is missing. fix the code.", "SyntaxError"),
        ("a name is misspelt. fix the code.", "NameError"),
        ("an import is missing. fix the code.", "NameError"),
    }


def test_a_fault_that_python_lets_pass_is_not_mended():
    problem = Problem(id="p", prompt="1?", answer="1", data={"program": "import math\nprint(1)"})
    episodes = [show(problem, "recovering", rollout=n) for n in range(12)]
    assert ["", "so \\boxed{1}"] in [spoken(episode) for episode in episodes]
    assert all(episode.right for episode in episodes)


def test_a_tool_free_demonstration_answers_from_the_plan_alone():
    tools = SubprocessTools()
    episode = show(style="tool_free", tools=tools)
    assert episode.right
    assert tools.calls == []
    assert spoken(episode) == ["i work it out in my head. use gcd from math. so \\boxed{4}"]


@pytest.mark.parametrize("style", ["direct", "guarded", "recovering"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_can_be_shown(name, style):
    settings = PracticeSettings(families=(name,))
    for problem in practice_problems(settings, "train", 1, seed=11):
        assert show(problem, style).right


@pytest.mark.parametrize("name", FAMILIES)
def test_guarded_programs_stay_short(name):
    settings = PracticeSettings(families=(name,))
    for problem in practice_problems(settings, "train", 100, seed=1):
        assert len(guarded(problem.data["program"], problem.data["check"])) <= 125


def test_the_styles_come_in_their_shares():
    teacher = Demonstrator(tools=ScriptedTools(text="4"), grader=BoxedGrader())

    async def openings():
        keys = [RolloutKey(seed=1, group="g", rollout=n) for n in range(1000)]
        return [await teacher.attempt(GCD, key) for key in keys]

    episodes = asyncio.run(openings())
    careful = sum(spoken(episode)[0].startswith("i should") for episode in episodes)
    checked = sum("check" in spoken(episode)[0] for episode in episodes)
    assert 150 < careful < 250
    assert 60 < checked < 140


def test_the_same_key_gives_the_same_demonstration():
    for rollout in range(3):
        first, second = (show(style="recovering", rollout=rollout) for _ in range(2))
        assert run_programs(first) == run_programs(second)


def test_a_wrong_output_makes_a_wrong_verdict():
    episode = show(tools=ScriptedTools(text="working\n5\n"))
    assert (episode.verdict.outcome, episode.verdict.answer) == (Outcome.WRONG, "5")


@pytest.mark.parametrize(
    "tools", [ScriptedTools(text=" \n"), ScriptedTools(text="4", status=ToolStatus.TIMEOUT)]
)
def test_without_a_result_there_is_no_answer(tools):
    episode = show(tools=tools)
    assert (episode.verdict.outcome, episode.verdict.answer) == (Outcome.WRONG, None)
    assert spoken(episode)[-1] == "there is no result."


@pytest.mark.parametrize(
    "tools",
    [
        ScriptedTools(error=SandboxError("the server died")),
        ScriptedTools(error=OSError("the server died")),
        ScriptedTools(text="the server died", status=ToolStatus.INFRASTRUCTURE),
    ],
)
def test_a_broken_tool_makes_the_episode_not_measured(tools):
    episode = show(tools=tools)
    (trajectory,) = episode.trajectories
    assert not episode.measured
    assert trajectory.stop is Stop.FAILED
    assert "the server died" in trajectory.error
    assert "the server died" in episode.verdict.why


def test_a_broken_grader_makes_the_episode_not_measured():
    episode = show(grader=BrokenGrader())
    assert not episode.measured
    assert "no scale" in episode.verdict.why
    assert len(episode.trajectories[0].turns) == 2


def test_the_opening_can_be_what_the_taught_agent_sees():
    opening = (System(text="use python."), User(text="q"))
    assert show(opening=lambda problem: opening).trajectories[0].opening == opening


def test_a_problem_without_a_program_is_shown_tool_free_or_not_at_all():
    settings = DemonstratorSettings(styles={"direct": 0.9, "tool_free": 0.1})
    episode = show(BARE, settings=settings)
    assert episode.right
    assert spoken(episode) == ["i work it out in my head. so \\boxed{42}"]
    with pytest.raises(RecipeError, match="'bare' has no program to show"):
        show(BARE)


@pytest.mark.parametrize(
    ("styles", "complaint"),
    [
        ({"direct": 1.0, "loud": 1.0}, "names 'loud': known are direct, deliberate"),
        ({}, "give finite weights"),
        ({"direct": 0.0}, "give finite weights"),
        ({"direct": 1.0, "guarded": -0.5}, "give finite weights"),
    ],
)
def test_weights_that_make_no_sense_are_refused(styles, complaint):
    with pytest.raises(RecipeError, match=complaint):
        DemonstratorSettings(styles=styles)


def test_a_program_without_a_check_is_guarded_against_arithmetic_errors():
    problem = Problem(id="p", prompt="1/0?", answer="none", data={"program": "a=0\nprint(1/a)"})
    (trajectory,) = show(problem, "guarded").trajectories
    assert trajectory.replies[0].status is ToolStatus.OK
    assert spoken(show(problem, "guarded"))[-1] == "so \\boxed{division by zero}"


def test_a_program_that_ends_in_no_bracket_can_be_broken_too():
    class First:
        def choice(self, options):
            return options[0]

    faulty = broken("x = 1", First())
    with pytest.raises(SyntaxError):
        compile(faulty.program, "main.py", "exec")


WRITTEN = Problem(
    id="add",
    prompt="write a function to add.",
    answer="def add(a, b): return a + b",
    data={
        "plan": "add them.",
        "program": "def add(a, b): return a + b\nprint(add(1, 2))",
        "closing": "so add is a + b",
    },
)


@pytest.mark.parametrize("style", ["direct", "deliberate", "guarded", "recovering", "tool_free"])
def test_a_closing_is_said_in_place_of_what_was_printed(style):
    assert spoken(show(WRITTEN, style))[-1].endswith("so add is a + b")


def test_a_closing_is_not_said_after_a_program_that_failed():
    failing = ScriptedTools(text="NameError", status=ToolStatus.MODEL_ERROR)
    assert spoken(show(WRITTEN, tools=failing))[-1] == "there is no result."


@pytest.mark.parametrize("style", ["direct", "tool_free"])
def test_a_problem_whose_closing_is_not_known_cannot_be_shown(style):
    unknown = Problem(id="p", prompt="?", answer="a program", data=WRITTEN.data | {"closing": ""})
    assert not can_show(unknown, DemonstratorSettings(styles={style: 1.0}))
    assert can_show(WRITTEN, DemonstratorSettings(styles={style: 1.0}))
