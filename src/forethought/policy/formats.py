"""Chat formats: messages to token ids, and sampled ids to a message.

A conversation grows by `opening`, then what was sampled, then `hear`, then what was sampled: each
prompt extends the one before, and sampled ids are never rendered again. `assistant` is for words
that nobody sampled. How one family writes is in its own module (`chatml`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Protocol

from tokenizers import Tokenizer

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, Message, ToolSpec
from forethought.core.trajectory import Tokens
from forethought.policy.chatml import COMPACT, HERMES, HERMES_THINKING, PLAIN, ChatML
from forethought.policy.parsing import Parsed


class ChatFormat(Protocol):
    """How a model family writes a conversation."""

    name: str
    end_of_turn: int
    """The id that ends an assistant turn: the id to stop at."""

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The ids of a whole conversation so far, up to where the assistant speaks.

        Raises `RecipeError` when tools are given to a format that cannot announce them.
        """
        ...

    def assistant(self, message: Assistant) -> list[int]:
        """The ids of one assistant turn from its words, `end_of_turn` included."""
        ...

    def hear(self, messages: Sequence[Message]) -> list[int]:
        """The ids between an assistant's `end_of_turn` and its next turn."""
        ...

    def read(self, ids: Sequence[int], tools: Sequence[ToolSpec], first_id: int) -> Parsed:
        """What sampled ids say; calls are numbered from `first_id`."""
        ...


FORMATS: dict[str, Callable[[Tokenizer], ChatFormat]] = {
    style.name: partial(ChatML, style=style) for style in (HERMES, HERMES_THINKING, COMPACT, PLAIN)
}


def chat_format(name: str, tokenizer: Tokenizer) -> ChatFormat:
    """The format called `name` for a tokenizer.

    Raises `RecipeError` when there is none, or when the tokenizer lacks its control tokens.
    """
    if name not in FORMATS:
        raise RecipeError(f"no chat format is called {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name](tokenizer)


def stripped_history(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation as a policy sees it that forgets its earlier thinking.

    Under the history `strip`, a new segment starts before a turn exactly when this differs from
    what the current segment holds; it starts with the `opening` of the result.

    >>> stripped_history([Assistant(text="42", thinking="six sevens")])
    (Assistant(text='42', thinking='', calls=(), role='assistant'),)
    """
    return tuple(
        replace(message, thinking="") if isinstance(message, Assistant) else message
        for message in messages
    )


def trained_stream(
    chat: ChatFormat,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    trained: Sequence[bool] | None = None,
) -> Tokens:
    """A recorded conversation as tokens: `sampled` exactly on what the assistant says.

    Each assistant turn counts from its first token to its `end_of_turn`; prompts, headers,
    newlines and replies do not. `trained` holds one truth per assistant turn and switches single
    turns off; without it all count. Log-probabilities are 0: nobody sampled these tokens.
    """
    spoken, trained = _turns(messages, trained)
    ends = [*spoken, len(messages)]
    parts = [Tokens.given(chat.opening(messages[: ends[0]], tools))]
    for place, end, counts in zip(spoken, ends[1:], trained, strict=True):
        message = messages[place]
        if isinstance(message, Assistant):
            parts.append(_spoken(chat.assistant(message), counts=counts))
        if place + 1 < len(messages):
            parts.append(Tokens.given(chat.hear(messages[place + 1 : end])))
    return Tokens.join(parts)


def stripped_streams(
    chat: ChatFormat,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    trained: Sequence[bool] | None = None,
) -> tuple[Tokens, ...]:
    """The same as a policy sees it that forgets its earlier thinking: one stream a segment.

    A segment ends with a turn that thought. The next one begins with all that came before,
    without thinking and as context only, so that every turn is trained in one segment. Segments
    in which nothing is trained are left out.
    """
    spoken, trained = _turns(messages, trained)
    thought = [place for place in spoken[:-1] if _thinks(messages[place])]
    edges = [0, *(spoken.index(place) + 1 for place in thought), len(spoken)]
    streams: list[Tokens] = []
    for first, after in pairwise(edges):
        start = spoken[first] if first else 0
        stop = spoken[after - 1] + 1 if after < len(spoken) else len(messages)
        shown = (*stripped_history(messages[:start]), *messages[start:stop])
        truths = [*[False] * first, *trained[first:after]]
        streams.append(trained_stream(chat, shown, tools, truths))
    return tuple(stream for stream in streams if any(stream.sampled))


def _turns(
    messages: Sequence[Message], trained: Sequence[bool] | None
) -> tuple[list[int], Sequence[bool]]:
    """Where the assistant speaks, and one truth for each of its turns."""
    spoken = [place for place, message in enumerate(messages) if isinstance(message, Assistant)]
    trained = [True] * len(spoken) if trained is None else trained
    if len(trained) != len(spoken):
        raise ValueError(f"{len(spoken)} assistant turns need as many truths, got {len(trained)}")
    return spoken, trained


def _thinks(message: Message) -> bool:
    return isinstance(message, Assistant) and bool(message.thinking)


def _spoken(ids: Sequence[int], *, counts: bool) -> Tokens:
    return Tokens(ids=tuple(ids), sampled=(counts,) * len(ids), logprobs=(0.0,) * len(ids))
