"""Recorded trajectories as rows to imitate: tokens with the author's own words marked."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from forethought.agents.demonstrators import worth_imitating
from forethought.core.errors import RecipeError
from forethought.core.messages import Message, ToolSpec
from forethought.core.randomness import derive_seed
from forethought.core.trajectory import Tokens, Trajectory
from forethought.policy.formats import ChatFormat, stripped_streams, trained_stream
from forethought.policy.protocol import ThinkingHistory
from forethought.policy.replies import shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrations:
    """Rows with calls and rows without, so that a phase can choose their shares.

    `too_long` counts the trajectories that were left out for their length.
    """

    with_calls: tuple[Tokens, ...]
    tool_free: tuple[Tokens, ...]
    too_long: int

    def drawn_from(self, tool_free: float) -> tuple[Tokens, ...]:
        """All rows of the kinds that a phase with this share without calls would draw from."""
        free = self.tool_free if tool_free > 0 else ()
        return (*free, *(self.with_calls if tool_free < 1 else ()))

    def draw(self, step: int, count: int, tool_free: float, seed: int) -> list[Tokens]:
        """The rows of one step: each kind in its own shuffled order, epoch after epoch.

        The share without calls holds over steps: what one cannot have in whole rows comes later.
        """
        before = _rounded(step * count * tool_free)
        free = _rounded((step + 1) * count * tool_free) - before
        return [
            *_pick(self.tool_free, before, free, derive_seed(seed, "tool_free")),
            *_pick(
                self.with_calls, step * count - before, count - free, derive_seed(seed, "calls")
            ),
        ]


def set_apart(
    trajectories: Iterable[Trajectory], share: float, seed: int
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Trajectories to train on, and those that are held out: about `share` of the questions.

    All that open alike are on one side. Raises `RecipeError` when one side would be empty.
    """
    given = list(trajectories)
    questions = list(dict.fromkeys(one.opening for one in given))
    count = max(round(share * len(questions)), 1)
    if count >= len(questions):
        raise RecipeError(
            f"sft.held_out = {share}: {len(questions)} different questions were recorded, and "
            f"holding {count} of them out leaves none to train on; collect more, or set it to 0"
        )
    chosen = set(random.Random(seed).sample(questions, count))
    return (
        [one for one in given if one.opening not in chosen],
        [one for one in given if one.opening in chosen],
    )


def render(
    trajectories: Iterable[Trajectory],
    chat: ChatFormat,
    tools: Sequence[ToolSpec],
    *,
    longest: int,
    train_failed_calls: bool,
    thinking: ThinkingHistory = "keep",
    reply_tokens: int | None = None,
) -> Demonstrations:
    """Write every trajectory in the chat format, and say which turns are trained.

    `tools` are announced where a trajectory does not bring its own.
    A trajectory is one row or, where earlier thinking is stripped, one a segment. A tool reply in
    it takes at most `reply_tokens`, as where the model speaks.
    Raises `RecipeError` for a trajectory in which no turn would be trained, naming it.
    """
    kinds: dict[bool, list[Tokens]] = {True: [], False: []}
    too_long = 0
    for number, trajectory in enumerate(trajectories):
        worth = worth_imitating(trajectory)
        trained = [True] * len(worth) if train_failed_calls else worth
        messages = shortened(chat, trajectory.messages, reply_tokens)
        told = tools if trajectory.tools is None else trajectory.tools
        segments = _segments(chat, messages, told, trained, thinking)
        if not any(any(tokens.sampled) for tokens in segments):
            raise RecipeError(
                f"trajectory {number} ({trajectory.opening[-1].text[:60]!r}) has no turn to train: "
                "every one of its calls failed; drop it or set sft.train_failed_calls = true"
            )
        if max(map(len, segments)) > longest:
            too_long += 1
        else:
            called = any(turn.message.calls for turn in trajectory.turns)
            kinds[called] += segments
    if not kinds[True] and not kinds[False]:
        raise RecipeError(
            f"sft: no trajectory is left to train on ({too_long} are longer than sft.longest = "
            f"{longest} tokens); collect some, or raise the limit"
        )
    return Demonstrations(
        with_calls=tuple(kinds[True]), tool_free=tuple(kinds[False]), too_long=too_long
    )


def _segments(
    chat: ChatFormat,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    trained: Sequence[bool],
    thinking: ThinkingHistory,
) -> tuple[Tokens, ...]:
    if thinking == "strip":
        return stripped_streams(chat, messages, tools, trained)
    return (trained_stream(chat, messages, tools, trained),)


def _rounded(rows: float) -> int:
    """Whole rows, the half rounded up: to even, a half a step would be none in every other two."""
    return math.floor(rows + 0.5)


def _pick(rows: Sequence[Tokens], start: int, count: int, seed: int) -> list[Tokens]:
    if count and not rows:
        raise RecipeError(
            "sft: a phase asks for trajectories of a kind that was not collected (with or without "
            "tool calls); change its tool_free share, collect.demonstrators.styles or the rows of "
            "collect.trajectories"
        )
    picked: list[Tokens] = []
    for place in range(start, start + count):
        epoch, index = divmod(place, len(rows))
        picked.append(rows[_order(len(rows), derive_seed(seed, epoch))[index]])
    return picked


@lru_cache(maxsize=8)
def _order(count: int, seed: int) -> list[int]:
    """A shuffled order; remembered, because consecutive rows share it."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order
