"""A single agent that reasons in turns and calls tools.

Covers one conversation from the question to a verdict. Many attempts are in `groups`; how words
become tokens is the policy's; what training makes of an episode is in `learning`.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from traceback import format_exception

from pydantic import Field

from forethought.agents.groups import concurrently
from forethought.core.errors import (
    GradingError,
    PolicyError,
    RecipeError,
    RolloutError,
    SandboxError,
    boundary,
    is_programming,
)
from forethought.core.messages import (
    Message,
    System,
    ToolCall,
    ToolReply,
    ToolSpec,
    ToolStatus,
    User,
)
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey
from forethought.core.settings import Settings
from forethought.core.trajectory import Episode, Finish, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.policy.protocol import Conversation, Policy, Spoken
from forethought.tasks.protocol import Grader
from forethought.tools.protocol import Tools, for_attempt

# A model that ends its turn while thinking has stopped of its own accord: nothing cut it off, so
# it has answered, with nothing; the turn's `finish` keeps the reason.
_ENDINGS = {
    Finish.TOKEN_LIMIT: Stop.TOKEN_LIMIT,
    Finish.CONTEXT_FULL: Stop.CONTEXT_FULL,
    Finish.REFUSED: Stop.REFUSED,
    Finish.UNCLOSED_THINKING: Stop.ANSWERED,
}


class AgentSettings(Settings):
    """How far an agent may go, and what it is told besides the question."""

    max_turns: int = Field(default=16, ge=0)
    """Turns whose calls are run. The agent may speak once more after the last of them."""
    max_tokens: int = Field(default=20_480, ge=1)
    """Sampled tokens in the whole trajectory at most."""
    calls_per_turn: int = Field(default=8, ge=1)
    """Calls that are run in one turn; those beyond are answered with an error."""
    max_seconds: float = Field(default=0.0, ge=0)
    """Seconds after which an attempt may make no more calls; 0: no limit. Turns, tokens and each
    program's time end every attempt without it, and with it what an attempt comes to depends on
    the machine: time in which it waits for others of its round counts, too."""
    stop_at_faults: bool = False
    """Whether a fault in a program (a KeyError, a TypeError, ... in a policy, a tool or a grader)
    ends the run, instead of leaving the attempt not measured."""
    instruction: str = ""
    """Put on a new line after the question or, where it holds `{question}`, around it."""
    system: str = ""
    """The system message; none when empty."""


def opening(problem: Problem, limits: AgentSettings) -> tuple[Message, ...]:
    """What an agent is told before it speaks: the system message if any, and the question."""
    template = limits.instruction
    template = template if "{question}" in template else "{question}\n" + template
    question = User(text=template.rstrip("\n").replace("{question}", problem.prompt))
    return (System(text=limits.system), question) if limits.system else (question,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAgent:
    """A policy that attempts a problem with the tools the problem allows (a `Solver`)."""

    policy: Policy
    tools: Tools
    grader: Grader
    limits: AgentSettings = field(default_factory=AgentSettings)
    name: str = "agent"
    clock: Callable[[], float] = time.monotonic

    async def attempt(self, problem: Problem, key: RolloutKey) -> Episode:
        """Converse until the agent answers or meets a limit, then grade.

        When the policy, a tool's sandbox or the grader breaks, the episode is not measured and
        keeps the turns that were spoken, and the traceback. Raises `RecipeError` when the
        problem's tools are all unknown here.
        """
        transcript = _Transcript(
            agent=self.name, opening=opening(problem, self.limits), began=self.clock()
        )
        try:
            stop = await self._converse(self._offered(problem), key, transcript)
            trajectory = transcript.end(stop)
            with boundary(GradingError, "grader"):
                verdict = await self.grader.grade(problem, trajectory)
        except RolloutError as error:
            if self.limits.stop_at_faults and is_programming(error):
                raise error.__cause__ or error from None
            trajectory = transcript.end(Stop.FAILED, error="".join(format_exception(error)))
            verdict = Verdict.not_measured(str(error))
        return Episode(id=key.episode, problem=problem, trajectories=(trajectory,), verdict=verdict)

    def _offered(self, problem: Problem) -> tuple[ToolSpec, ...]:
        known = self.tools.specs
        offered = tuple(spec for spec in known if spec.name in problem.tools)
        if known and problem.tools and not offered:
            raise RecipeError(
                f"problem {problem.id} allows the tools {', '.join(problem.tools)}, but the agent "
                f"has {', '.join(spec.name for spec in known)}: rename one or add the tool"
            )
        return offered

    async def _converse(
        self, offered: Sequence[ToolSpec], key: RolloutKey, transcript: "_Transcript"
    ) -> Stop:
        names = {spec.name for spec in offered}
        async with AsyncExitStack() as stack:
            with boundary(PolicyError, "policy"):
                conversation = await stack.enter_async_context(
                    self.policy.open(transcript.opening, offered, key)
                )
            own = replace(self, tools=await stack.enter_async_context(for_attempt(self.tools)))
            try:
                return await own._take_turns(conversation, names, transcript)
            finally:
                transcript.segments = conversation.segments

    async def _take_turns(
        self, conversation: Conversation, names: Collection[str], transcript: "_Transcript"
    ) -> Stop:
        while True:
            with boundary(PolicyError, "policy"):
                spoken = await conversation.speak(self.limits.max_tokens - transcript.tokens)
            stop = self._ending(spoken, transcript)
            answers = () if stop else await self._answer(spoken.message.calls, names)
            transcript.add(spoken, tuple(answer.reply for answer in answers))
            if stop:
                return stop
            for answer in answers:
                answer.refuse_broken()
            replies = [answer.reply for answer in answers]
            with boundary(PolicyError, "policy"):
                await conversation.hear(replies)

    def _ending(self, spoken: Spoken, before: "_Transcript") -> Stop | None:
        if spoken.finish in _ENDINGS:
            return _ENDINGS[spoken.finish]
        if not spoken.message.calls:
            return Stop.ANSWERED
        if len(before.turns) >= self.limits.max_turns:
            return Stop.TURN_LIMIT
        if before.tokens + spoken.tokens >= self.limits.max_tokens:
            return Stop.TOKEN_LIMIT
        if 0 < self.limits.max_seconds <= self.clock() - before.began:
            return Stop.TIME_LIMIT
        return None

    async def _answer(
        self, calls: Sequence[ToolCall], names: Collection[str]
    ) -> "tuple[_Answer, ...]":
        allowed = self.limits.calls_per_turn
        answers = await concurrently(self._run(call, names) for call in calls[:allowed])
        excess = f"not run: at most {allowed} calls a turn are run"
        return (*answers, *(_mistake(call, excess) for call in calls[allowed:]))

    async def _run(self, call: ToolCall, names: Collection[str]) -> "_Answer":
        if call.fault:
            return _mistake(call, call.fault)
        if call.name not in names:
            known = ", ".join(sorted(names)) or "none"
            return _mistake(call, f"there is no tool {call.name[:100]!r}; the tools are: {known}")
        try:
            with boundary(SandboxError, f"tool {call.name}"):
                return _Answer(await self.tools.call(call))
        except RolloutError as error:
            # A reply, so that the calls beside it finish and the record shows which one broke.
            return _Answer(_reply(call, str(error), ToolStatus.INFRASTRUCTURE), error)


@dataclass(slots=True, kw_only=True)
class _Transcript:
    """What was said so far in one attempt: it outlives the conversation when that breaks."""

    agent: str
    opening: tuple[Message, ...]
    began: float
    turns: list[Turn] = field(default_factory=list[Turn])
    segments: tuple[Tokens, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(turn.tokens for turn in self.turns)

    def add(self, spoken: Spoken, replies: tuple[ToolReply, ...]) -> None:
        turn = Turn(
            message=spoken.message,
            finish=spoken.finish,
            replies=replies,
            tokens=spoken.tokens,
            entropy=spoken.entropy,
            weight_version=spoken.weight_version,
            temperature=spoken.temperature,
            seconds=spoken.seconds,
        )
        self.turns.append(turn)

    def end(self, stop: Stop, error: str = "") -> Trajectory:
        return Trajectory(
            agent=self.agent,
            opening=self.opening,
            turns=tuple(self.turns),
            stop=stop,
            segments=self.segments,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a call came to, and the error when its tool broke."""

    reply: ToolReply
    error: RolloutError | None = None

    def refuse_broken(self) -> None:
        if self.error is not None:
            raise self.error
        if self.reply.status is ToolStatus.INFRASTRUCTURE:
            raise SandboxError(self.reply.text)


def _mistake(call: ToolCall, why: str) -> _Answer:
    return _Answer(_reply(call, why, ToolStatus.MODEL_ERROR))


def _reply(call: ToolCall, text: str, status: ToolStatus) -> ToolReply:
    return ToolReply(call_id=call.id, name=call.name, text=text, status=status)
