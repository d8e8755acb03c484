"""Stand-ins that follow a script. They implement the project's protocols; nothing is patched."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from forethought.agents.tool_agent import AgentSettings, ToolAgent
from forethought.core.messages import Assistant, Message, ToolCall, ToolReply, ToolSpec
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Episode, Finish, Group, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.policy.protocol import Spoken

PROBLEM = Problem(id="p", prompt="6 * 7?", answer="42")
KEY = RolloutKey(seed=0, group="rl/0/0/p", rollout=3)
PYTHON = ToolSpec(
    name="python",
    description="Run Python.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
)


def call(arguments="6*7", *, id="call_0", name="python", fault=""):
    return ToolCall(id=id, name=name, arguments=arguments, fault=fault)


def says(text="", *calls, finish=Finish.END_OF_TURN, tokens=3, entropy=0.5, thinking=""):
    """One turn of a script: words, then calls."""
    return Spoken(
        message=Assistant(text=text, thinking=thinking, calls=calls),
        finish=finish,
        tokens=tokens,
        entropy=entropy,
        weight_version=1,
        temperature=1.0,
        seconds=0.25,
    )


Line = Spoken | BaseException
Script = Sequence[Line]


@dataclass
class ScriptedConversation:
    """Says the lines of its script in order; a line that is an error is raised."""

    script: Script
    opening: tuple[Message, ...]
    offered: tuple[str, ...]
    key: RolloutKey
    allowed: list[int] = field(default_factory=list)
    heard: list[tuple[ToolReply, ...]] = field(default_factory=list)
    parts: list[Tokens] = field(default_factory=lambda: [Tokens.given((1, 2))])
    entered: bool = False
    left: bool = False

    async def __aenter__(self):
        self.entered = True
        return self

    async def __aexit__(self, kind, error, trace):
        self.left = True

    @property
    def segments(self) -> tuple[Tokens, ...]:
        return (Tokens.join(self.parts),)

    async def speak(self, max_tokens: int) -> Spoken:
        line = self.script[len(self.allowed)]
        self.allowed.append(max_tokens)
        if isinstance(line, BaseException):
            raise line
        n = line.tokens
        ids = tuple(range(7, 7 + n))
        self.parts.append(Tokens(ids=ids, sampled=(True,) * n, logprobs=(-0.5,) * n))
        return line

    async def hear(self, replies: Sequence[ToolReply]) -> None:
        self.heard.append(tuple(replies))
        self.parts.append(Tokens.given((3,) * len(replies)))


@dataclass
class ScriptedPolicy:
    """Opens conversations that follow one script, or the script that a function gives a key."""

    script: Script | Callable[[RolloutKey], Script]
    conversations: list[ScriptedConversation] = field(default_factory=list)

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], key: RolloutKey
    ) -> ScriptedConversation:
        script = self.script(key) if callable(self.script) else self.script
        names = tuple(tool.name for tool in tools)
        conversation = ScriptedConversation(script, tuple(messages), names, key)
        self.conversations.append(conversation)
        return conversation


@dataclass
class EchoTools:
    """Replies to every call with its own arguments."""

    specs: tuple[ToolSpec, ...] = (PYTHON,)
    calls: list[ToolCall] = field(default_factory=list)

    async def call(self, call: ToolCall) -> ToolReply:
        self.calls.append(call)
        return ToolReply(call_id=call.id, name=call.name, text=call.arguments)


@dataclass
class ScriptedTools:
    """Answers a call with what a function gives for its arguments; an error is raised."""

    answer: Callable[[str], Awaitable[ToolReply | BaseException | str]]
    specs: tuple[ToolSpec, ...] = (PYTHON,)

    async def call(self, call: ToolCall) -> ToolReply:
        found = await self.answer(call.arguments)
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, str):
            return ToolReply(call_id=call.id, name=call.name, text=found)
        return found


@dataclass
class ExactGrader:
    """Right when the last thing said is the answer, to the letter."""

    graded: list[Trajectory] = field(default_factory=list)

    async def grade(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        self.graded.append(trajectory)
        said = trajectory.turns[-1].message.text if trajectory.turns else ""
        if said == problem.answer:
            return Verdict.right(answer=said)
        return Verdict.wrong(answer=said or None)


@dataclass
class BrokenGrader:
    """Breaks on every trajectory."""

    error: BaseException

    async def grade(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        raise self.error


@dataclass
class ScriptedSolver:
    """Ends each attempt with the verdict that a function gives; an error is raised."""

    verdict: Callable[[Problem, RolloutKey], Verdict | BaseException]
    attempted: list[RolloutKey] = field(default_factory=list)

    async def attempt(self, problem: Problem, key: RolloutKey) -> Episode:
        self.attempted.append(key)
        found = self.verdict(problem, key)
        if isinstance(found, BaseException):
            raise found
        return episode(problem, found, id=key.episode)


def tool_agent(script, tools=None, grader=None, **limits) -> ToolAgent:
    """An agent that says the script, or whose policy is given instead of one."""
    return ToolAgent(
        policy=script if isinstance(script, ScriptedPolicy) else ScriptedPolicy(script),
        tools=tools or EchoTools(),
        grader=grader or ExactGrader(),
        limits=AgentSettings(**limits),
    )


def attempt(script, tools=None, grader=None, problem=PROBLEM, **limits) -> Episode:
    """What comes of one attempt by such an agent."""
    return asyncio.run(tool_agent(script, tools, grader, **limits).attempt(problem, KEY))


def only(episode: Episode) -> Trajectory:
    """The one trajectory of an episode."""
    (trajectory,) = episode.trajectories
    return trajectory


def episode(problem=PROBLEM, verdict=None, *, id="e", turns=(), stop=Stop.ANSWERED):
    """An attempt with a verdict, by one agent."""
    trajectory = Trajectory(agent="agent", opening=(), turns=tuple(turns), stop=stop)
    return Episode(
        id=id,
        problem=problem,
        trajectories=(trajectory,),
        verdict=verdict or Verdict.right(answer=problem.answer),
    )


def turn(*statuses, tokens=3, entropy=0.5):
    """A turn with one call for each status, answered with it."""
    calls = tuple(call(id=f"call_{n}") for n in range(len(statuses)))
    replies = tuple(
        ToolReply(call_id=one.id, name=one.name, text="", status=status)
        for one, status in zip(calls, statuses, strict=True)
    )
    return Turn(
        message=Assistant(text="", calls=calls),
        finish=Finish.END_OF_TURN,
        replies=replies,
        tokens=tokens,
        entropy=entropy,
    )


MARKS: Mapping[str, Verdict] = {
    "+": Verdict.right(answer="42"),
    "-": Verdict.wrong(answer="41"),
    "~": Verdict.wrong(),
    "?": Verdict.not_measured("no sandbox"),
}


def graded(problem_id: str, marks: str, domain: str = "general") -> Group:
    """A group from marks: + right, - wrong, ~ no answer, ? not measured."""
    problem = Problem(id=problem_id, prompt="6 * 7?", answer="42", domain=domain)
    episodes = (
        episode(problem, MARKS[mark], id=f"{problem_id}/{n}") for n, mark in enumerate(marks)
    )
    return Group(id=f"g/{problem_id}", problem=problem, episodes=tuple(episodes))
