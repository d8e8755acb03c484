"""The styles of demonstration: what a scripted teacher says and runs, one function a style.

A style writes all but the last message, which depends on what the tool replied. A new style is a
function here and a line in `STYLES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from forethought.agents.demonstrations.programs import broken, guarded
from forethought.core.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a problem lets a demonstrator know: `plan` and `program` are "" where it does not.

    `closing` is the final message; None where that gives what the program printed, "" where it is
    not known.

    >>> Lesson(plan="use gcd.", program="", check="", answer="4").program
    ''
    """

    plan: str
    program: str
    check: str
    answer: str
    closing: str | None = None

    @classmethod
    def of(cls, problem: Problem) -> "Lesson":
        """Read a lesson from the problem's `data` (all optional)."""
        known = {name: str(problem.data.get(name) or "") for name in ("plan", "program", "check")}
        closing = problem.data.get("closing")
        return cls(
            **known, answer=problem.answer, closing=None if closing is None else str(closing)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something to say, and a program to run after it ("" for none).

    >>> Line(text="use gcd.", program="import math").text
    'use gcd.'
    """

    text: str
    program: str = ""


Style = Callable[[Lesson, Random], tuple[Line, ...]]


def direct(lesson: Lesson, rng: Random) -> tuple[Line, ...]:
    """Plan, then call."""
    del rng  # nothing to choose
    return (Line(text=lesson.plan, program=lesson.program),)


def deliberate(lesson: Lesson, rng: Random) -> tuple[Line, ...]:
    """Slow down, look at the numbers, plan, and only then call."""
    del rng  # nothing to choose
    text = _joined("i should be careful. read the numbers.", lesson.plan, "let python work.")
    return (Line(text=text, program=lesson.program),)


def guarded_call(lesson: Lesson, rng: Random) -> tuple[Line, ...]:
    """Call a program that checks itself."""
    del rng  # nothing to choose
    program = guarded(lesson.program, lesson.check)
    return (Line(text=_joined(lesson.plan, "check the result."), program=program),)


def recovering(lesson: Lesson, rng: Random) -> tuple[Line, ...]:
    """Call a program with a fault, read the error, name the fault, and call the mended one."""
    faulty = broken(lesson.program, rng)
    return (
        Line(text=lesson.plan, program=faulty.program),
        Line(text=f"{faulty.fault} fix the code.", program=lesson.program),
    )


def tool_free(lesson: Lesson, rng: Random) -> tuple[Line, ...]:
    """Answer without a call, which is right because the answer is known."""
    del rng  # nothing to choose
    closing = answer_text(lesson.answer) if lesson.closing is None else lesson.closing
    text = _joined("i work it out in my head.", lesson.plan, closing)
    return (Line(text=text),)


def answer_text(answer: str) -> str:
    """The words that give a final answer."""
    return f"so \\boxed{{{answer}}}"


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


STYLES: dict[str, Style] = {
    "direct": direct,
    "deliberate": deliberate,
    "guarded": guarded_call,
    "recovering": recovering,
    "tool_free": tool_free,
}
"""Every style by the name that settings use."""

NEEDS_NO_PROGRAM = frozenset({"tool_free"})
"""The styles that can show a problem without a program."""
