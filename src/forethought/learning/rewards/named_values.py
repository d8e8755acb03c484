"""Problems whose answer has named parts, the value of each checked one by one.

A problem has parts where its `data` holds `parts`: an object of names and values, as in `{"prompt":
..., "answer": ..., "parts": {"mean": "4", "median": "3.5"}}`. The final message gives a part where
it writes its name, `:` or `=`, and a value; of several, the last counts. Steps on the way are
checked alike, message by message. The verdict on the whole answer is a grader's, not this.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from forethought.core.errors import RecipeError
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode
from forethought.learning.rewards.calls import turns_of
from forethought.tasks.answers import boxed_answer, same_value

_VALUE = r"[\s*`$]*[:=][ \t]*([^\n;]+?)(?=,\s|;|\n|$)"


def named_parts(problem: Problem) -> Mapping[str, str]:
    """The parts of a problem's answer by name; none for most problems.

    Raises `RecipeError` where `data["parts"]` is something else than names and values.

    >>> named_parts(Problem(id="p", prompt="?", answer="7", data={"parts": {"x": 3, "y": "4"}}))
    {'x': '3', 'y': '4'}
    """
    found: Any = problem.data.get("parts", {})
    if not isinstance(found, Mapping) or not all(map(_is_value, cast("Any", found).values())):
        raise RecipeError(
            f"problem {problem.id}: 'parts' must be an object of names and values, got "
            f"{str(cast('object', found))[:60]}; mend the row or leave 'parts' out"
        )
    named = cast("Mapping[str, object]", found)
    return {name: str(value) for name, value in named.items()}


def given_value(text: str, name: str) -> str | None:
    r"""The value that a text gives last for the part called `name`; None where it gives none.

    >>> given_value("mean: 2,125, median = \\boxed{4}.", "median")
    '4'
    """
    found = re.findall(rf"(?<!\w){re.escape(name)}{_VALUE}", text, re.IGNORECASE)
    if not found:
        return None
    last = str(found[-1])
    return boxed_answer(last) or last.strip(" \t*`$").removesuffix(".") or None


def coverage(episode: Episode) -> float:
    """The share of the problem's parts for which a value is given; 0 without parts."""
    return _share([value is not None for value, _ in _compared(episode)])


def verification(episode: Episode) -> float:
    """The share of the problem's parts that are right, by value; 0 without parts."""
    return _share(
        [value is not None and same_value(value, known) for value, known in _compared(episode)]
    )


def steps(episode: Episode) -> tuple[float, ...]:
    """For each turn, the share of the problem's parts that it gives first, and gives right.

    What its message says counts, calls and thinking do not. A part that was once given wrong pays
    nobody: guessing on earns nothing.
    """
    parts = named_parts(episode.problem)
    left, found = dict(parts), list[float]()
    for turn in turns_of(episode):
        values = {name: given_value(turn.message.text, name) for name in left}
        given = {name: value for name, value in values.items() if value is not None}
        right = sum(same_value(value, left[name]) for name, value in given.items())
        left = {name: known for name, known in left.items() if name not in given}
        found.append(right / len(parts) if parts else 0.0)
    return tuple(found)


def _compared(episode: Episode) -> list[tuple[str | None, str]]:
    """What was given for each part, beside what is known."""
    text = _final_text(episode)
    parts = named_parts(episode.problem)
    return [(given_value(text, name), known) for name, known in parts.items()]


def _final_text(episode: Episode) -> str:
    """The last agent's last message, if it is final: what tools said is never read."""
    if not episode.trajectories or not episode.trajectories[-1].turns:
        return ""
    message = episode.trajectories[-1].turns[-1].message
    return "" if message.calls else message.text


def _share(found: list[bool]) -> float:
    return sum(found) / len(found) if found else 0.0


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)
