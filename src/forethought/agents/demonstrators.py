"""A scripted teacher: it shows how to solve problems whose solution is known, with real calls.

Its episodes are material for supervised training. They hold words and no tokens, since nobody
sampled them. What the tool replies is real, and so is the verdict: an answer is read from the
tool's output and never put right, unless the problem comes with a `closing`, which is said then.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from pydantic import Field, field_validator

from forethought.agents.demonstrations.styles import (
    NEEDS_NO_PROGRAM,
    STYLES,
    Lesson,
    Line,
    answer_text,
)
from forethought.core.errors import GradingError, RecipeError, RolloutError, SandboxError, boundary
from forethought.core.messages import Assistant, Message, ToolCall, ToolReply, ToolStatus, User
from forethought.core.problem import Problem
from forethought.core.randomness import RolloutKey, derive_seed
from forethought.core.settings import Settings
from forethought.core.trajectory import Episode, Finish, Stop, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.tasks.protocol import Grader
from forethought.tools.protocol import Tools, for_attempt


def _usual_styles() -> dict[str, float]:
    return {"direct": 0.45, "deliberate": 0.2, "guarded": 0.1, "recovering": 0.25}


class DemonstratorSettings(Settings):
    """How a scripted teacher shows things."""

    styles: dict[str, float] = Field(default_factory=_usual_styles)
    """The weight of each style; one that is not named has none."""

    @field_validator("styles")
    @classmethod
    def _weights(cls, styles: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(styles) - set(STYLES))
        if unknown:
            raise RecipeError(
                f"collect.demonstrators.styles names {', '.join(map(repr, unknown))}: "
                f"known are {', '.join(STYLES)}"
            )
        total = sum(styles.values())
        if min(styles.values(), default=0.0) < 0.0 or not 0.0 < total < math.inf:
            raise RecipeError(
                f"collect.demonstrators.styles is {styles}: give finite weights of at least 0, "
                "one of them more"
            )
        return styles


def can_show(problem: Problem, settings: DemonstratorSettings) -> bool:
    """Whether some style with a weight fits: most need the problem to come with a program."""
    return bool(_fitting(Lesson.of(problem), settings))


def question(problem: Problem) -> tuple[Message, ...]:
    """The plainest opening: the problem as the user's message."""
    return (User(text=problem.prompt),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    """Solves problems by script, in a style that is drawn anew for each attempt.

    `opening` gives the messages before the first turn: pass what the taught agent will see.
    """

    tools: Tools
    grader: Grader
    settings: DemonstratorSettings = field(default_factory=DemonstratorSettings)
    opening: Callable[[Problem], tuple[Message, ...]] = question
    name: str = "demonstrator"

    async def attempt(self, problem: Problem, key: RolloutKey) -> Episode:
        """Show one solution. A broken tool or grader makes the episode *not measured*.

        Raises `RecipeError` when no style with a weight can show this problem.
        """
        turns: list[Turn] = []
        stop, error = Stop.ANSWERED, ""
        lines = self._script(problem, key)
        try:
            async with for_attempt(self.tools) as tools:
                own = replace(self, tools=tools)
                for line in lines:
                    if turns and _succeeded(turns[-1]):  # a fault that Python let pass needs none
                        break
                    turns.append(await own._turn(line, f"call_{len(turns)}"))
        except RolloutError as broke:
            stop, error = Stop.FAILED, str(broke)
        else:
            if turns[-1].replies:
                turns.append(_conclusion(turns[-1].replies[-1], Lesson.of(problem).closing))
        trajectory = Trajectory(
            agent=self.name,
            opening=self.opening(problem),
            turns=tuple(turns),
            stop=stop,
            error=error,
        )
        verdict = await self._verdict(problem, trajectory)
        return Episode(id=key.episode, problem=problem, trajectories=(trajectory,), verdict=verdict)

    def _script(self, problem: Problem, key: RolloutKey) -> tuple[Line, ...]:
        lesson = Lesson.of(problem)
        weights = _fitting(lesson, self.settings)
        if not weights:
            raise RecipeError(
                f"problem {problem.id!r} has no program to show: leave it out, or give "
                "collect.demonstrators.styles.tool_free a weight"
            )
        rng = Random(derive_seed(key.turn_seed(0), "demonstration"))
        (style,) = rng.choices(list(weights), list(weights.values()))
        return STYLES[style](lesson, rng)

    async def _turn(self, line: Line, call_id: str) -> Turn:
        if not line.program:
            return Turn(message=Assistant(text=line.text), finish=Finish.END_OF_TURN)
        arguments = json.dumps({"code": line.program})
        call = ToolCall(id=call_id, name="python", arguments=arguments)
        with boundary(SandboxError, "the demonstrator's call"):
            reply = await self.tools.call(call)
        if reply.status is ToolStatus.INFRASTRUCTURE:
            raise SandboxError(f"the demonstrator's call: {reply.text}")
        message = Assistant(text=line.text, calls=(call,))
        return Turn(message=message, finish=Finish.END_OF_TURN, replies=(reply,))

    async def _verdict(self, problem: Problem, trajectory: Trajectory) -> Verdict:
        try:
            with boundary(GradingError, "grading a demonstration"):
                return await self.grader.grade(problem, trajectory)
        except RolloutError as broke:
            return Verdict.not_measured(str(broke))


def worth_imitating(trajectory: Trajectory) -> tuple[bool, ...]:
    """For each turn, whether a student should learn to say it: not where a call went wrong."""
    return tuple(_succeeded(turn) for turn in trajectory.turns)


def _succeeded(turn: Turn) -> bool:
    return all(reply.status is ToolStatus.OK for reply in turn.replies)


def _fitting(lesson: Lesson, settings: DemonstratorSettings) -> dict[str, float]:
    """The styles that can show a lesson, with their weights."""
    return {
        style: weight
        for style, weight in settings.styles.items()
        if weight > 0.0 and lesson.closing != "" and (lesson.program or style in NEEDS_NO_PROGRAM)
    }


def _conclusion(reply: ToolReply, closing: str | None) -> Turn:
    """The final turn: the closing, or what a program printed last; no answer when it failed."""
    printed = [line.strip() for line in reply.text.split("\n") if line.strip()]
    text = "there is no result."
    if reply.status is ToolStatus.OK and closing is not None:
        text = closing
    elif reply.status is ToolStatus.OK and printed:
        text = answer_text(printed[-1])
    return Turn(message=Assistant(text=text), finish=Finish.END_OF_TURN)
