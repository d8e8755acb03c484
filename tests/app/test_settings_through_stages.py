"""What a recipe says reaches the agents, the tool and the learners of every stage.

The stages are the real ones, with real engines and the real tool; only the words of their agents
follow a script, so that every attempt calls the tool and every group has something to compare.
"""

import asyncio
import io
import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from benchmarks.small import coins
from rich.console import Console

from app.small import forethought
from app.test_other_models import remote
from forethought.agents.tool_agent import AgentSettings, ToolAgent
from forethought.app.context import Context
from forethought.app.engine import Engine
from forethought.app.pipeline import WORK, practise
from forethought.app.recipe import read_recipe
from forethought.app.show import Show
from forethought.core.messages import ToolStatus
from forethought.core.trajectory import Episode, Stop
from forethought.journal.run import Run
from forethought.learning.learner import LocalLearner
from policy.endpoint import serving
from scripted import ScriptedPolicy, call, says

SLEEPS = json.dumps({"code": "import time; time.sleep(4)"})  # as long as no default limit ends
CHANGED = (
    "--agent.instruction=Go on.",
    "--tool.wall_seconds=1.0",
    "--compute.at_once=2",
    "--compute.micro_tokens=300",
    "--compute.logit_tokens=50",
    "--sampling.max_tokens=9",
    "--sampling.thinking=strip",
    "--eval.temperature=0.7",
    "--eval.top_p=0.9",
)
FEW = (
    "--collect.problems=24",
    "--sft.phases.0.steps=2",
    "--sft.phases.1.steps=2",
    "--sft.pilot_problems=3",
    "--measure.problems=1",
    "--rl.steps=1",
    "--eval.problems=1",
    "--eval.attempts=3",
)
STAGES = ("pilot", "measure", "rl", "after")


def script(key):
    """A call, which takes long in the first of a group, and an answer that is right in half."""
    asked = "{}" if key.rollout else SLEEPS
    answer = "\\boxed{3}" if key.rollout % 2 else "\\boxed{5}"
    return [says("", call(asked), tokens=1), says(answer, tokens=1)]


@dataclass
class Heard:
    """What one stage gave to its agents, and what came of them."""

    agents: list[ToolAgent] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    open: int = 0
    most: int = 0


@dataclass(frozen=True)
class Overheard:
    """An agent as a stage asked for it, with words from the script; what it does is kept."""

    agent: ToolAgent
    stages: dict[str, Heard]

    async def attempt(self, problem, key):
        heard = self.stages[key.group.partition("/")[0]]
        heard.agents.append(self.agent)
        heard.open += 1
        heard.most = max(heard.most, heard.open)
        speaking = replace(self.agent, policy=ScriptedPolicy(script))
        heard.episodes.append(await speaking.attempt(problem, key))
        heard.open -= 1
        return heard.episodes[-1]


@dataclass(frozen=True, kw_only=True)
class ScriptedEngine(Engine):
    """An engine that keeps what its agents and learners are made of."""

    stages: dict[str, Heard]
    learners: list[LocalLearner]

    def agent(self, tools, grader, limits, sampling):
        return Overheard(Engine.agent(self, tools, grader, limits, sampling), self.stages)

    def learner(self, *given, **named):
        self.learners.append(Engine.learner(self, *given, **named))
        return self.learners[-1]


class ScriptedContext(Context):
    """A run whose agents say what the script says."""

    def __init__(self, recipe, run):
        super().__init__(recipe, run, Show(Console(file=io.StringIO())))
        self.stages = defaultdict(Heard)
        self.learners = []

    @contextmanager
    def engine(self, model, *, with_reference=False, trains=False):
        with super().engine(model, with_reference=with_reference, trains=trains) as engine:
            parts = {each.name: getattr(engine, each.name) for each in fields(engine)}
            yield ScriptedEngine(**parts, stages=self.stages, learners=self.learners)


@pytest.fixture(scope="module")
def heard(recipe, tmp_path_factory):
    """What every stage that samples gave to its agents in one run."""
    chosen = read_recipe(recipe, [*CHANGED, *FEW])
    folder = tmp_path_factory.mktemp("heard") / "run"

    async def run(context):
        for name in ("collect", "sft", "measure"):
            await WORK[name](context)
        await practise(context)

    with Run.create_or_open(folder, chosen.model_dump(mode="json")) as run_of_it:
        context = ScriptedContext(chosen, run_of_it)
        asyncio.run(run(context))
    return SimpleNamespace(recipe=chosen, stages=context.stages, learners=context.learners)


def test_every_stage_that_samples_is_overheard(heard):
    assert {*heard.stages} == {*STAGES}
    assert all(len(each.episodes) > 2 for each in heard.stages.values())


@pytest.mark.parametrize("stage", STAGES)
def test_agents_have_the_limits_and_the_words_of_the_recipe(heard, stage):
    limits = heard.recipe.agent
    ours = (limits.max_turns, limits.max_tokens, limits.instruction)
    assert ours == (2, 48, "Go on.")
    assert all(agent.limits == limits != AgentSettings() for agent in heard.stages[stage].agents)


@pytest.mark.parametrize("stage", STAGES)
def test_programs_have_the_time_of_the_recipe(heard, stage):
    replies = [
        reply
        for episode in heard.stages[stage].episodes
        for trajectory in episode.trajectories
        for reply in trajectory.replies
    ]
    stopped = [reply.text for reply in replies if reply.status is ToolStatus.TIMEOUT]
    assert {*stopped} == {"[stopped after 1 seconds]"}


@pytest.mark.parametrize("stage", STAGES)
def test_as_many_attempts_are_open_as_the_recipe_allows(heard, stage):
    assert heard.stages[stage].most == 2


@pytest.mark.parametrize("stage", ["pilot", "measure", "rl"])
def test_agents_that_train_sample_as_the_recipe_says(heard, stage):
    for agent in heard.stages[stage].agents:
        assert agent.policy.settings == heard.recipe.sampling
    assert heard.recipe.sampling.thinking == "strip"


def test_an_exam_samples_in_two_ways_and_sees_of_thinking_what_training_saw(heard):
    found = [agent.policy.settings for agent in heard.stages["after"].agents]
    sampled, greedy = found[:3], found[3:]
    told = {(each.temperature, each.top_p, each.thinking, each.max_tokens) for each in sampled}
    assert told == {(0.7, 0.9, "strip", 9)}
    told = {(each.temperature, each.top_p, each.thinking, each.max_tokens) for each in greedy}
    assert told == {(0.0, 1.0, "strip", 9)}


def test_every_learner_computes_in_the_portions_of_the_recipe(heard):
    assert len(heard.learners) == 3  # two phases of imitation, and reinforcement learning
    portions = {(each.compute.micro_tokens, each.compute.logit_tokens) for each in heard.learners}
    assert portions == {(300, 50)}


def problems_that(program, tmp_path, count):
    """A file of problems that one program shows."""
    path = tmp_path / "problems.jsonl"
    shown = ({**coin, "program": program} for coin in coins(count, "train"))
    path.write_text("".join(json.dumps(each) + "\n" for each in shown))
    return path


def recorded(recipe, program, tmp_path, *overrides):
    """What the tool replied to demonstrations of four problems."""
    path, folder = problems_that(program, tmp_path, 12), tmp_path / "run"
    few = ("--collect.problems=4", "--sft.pilot_problems=1", "--measure.problems=1")
    styles = "--collect.demonstrators.styles={direct=1.0}"
    words = ("--run", folder, f"--problems.train={path}", styles, *few, *overrides)
    assert forethought("collect", recipe, *words) == 0
    return stored(folder, "collect")[0]


def stored(folder, stage):
    """The tool's replies and the endings of a stage's attempts."""
    with Run.read(folder) as run:
        trajectories = [
            trajectory
            for group in run.groups(stage)
            for episode in group.episodes
            for trajectory in episode.trajectories
        ]
    replies = [reply for trajectory in trajectories for reply in trajectory.replies]
    return replies, [trajectory.stop for trajectory in trajectories]


def test_programs_of_demonstrations_have_the_time_of_the_recipe(recipe, tmp_path):
    replies = recorded(recipe, "import time; time.sleep(4)", tmp_path, "--tool.wall_seconds=1.0")
    assert [reply.status for reply in replies] == [ToolStatus.TIMEOUT] * 4


def test_demonstrations_are_recorded_as_many_at_once_as_the_recipe_allows(recipe, tmp_path):
    program = "import time\na = time.time()\ntime.sleep(0.3)\nprint(a, time.time())"
    replies = recorded(recipe, program, tmp_path, "--compute.at_once=1")
    spans = sorted(tuple(map(float, reply.text.split())) for reply in replies)
    assert len(spans) == 4
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("command", "stage", "place"),
    [("collect", "collect", "--collect.teacher"), ("eval", "eval_remote", "--model")],
)
def test_a_model_behind_an_endpoint_has_the_limits_and_the_tool_of_the_recipe(
    recipe, tmp_path, command, stage, place
):
    asked = {"name": "python", "arguments": SLEEPS}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": asked}],
    }
    models = (200, {"data": [{"id": "m", "object": "model"}]})
    calls = (200, {"choices": [{"finish_reason": "tool_calls", "message": message}]})
    kind = {"type": "openai"} if command == "eval" else {}
    with serving(models, *[calls] * 4) as endpoint:
        words = (
            *(f"{place}={remote(endpoint, **kind)}", "--run", tmp_path / "run"),
            *("--agent.max_turns=1", "--tool.wall_seconds=1.0"),
            *("--collect.problems=2", "--eval.problems=1", "--eval.attempts=1"),
        )
        assert forethought(command, recipe, *words) == 0
    replies, stops = stored(tmp_path / "run", stage)
    assert [reply.status for reply in replies] == [ToolStatus.TIMEOUT] * 2
    assert stops == [Stop.TURN_LIMIT] * 2
