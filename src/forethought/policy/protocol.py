"""What the rest of the system asks of a policy, and of the sampler beneath it."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from pydantic import Field

from forethought.core.messages import Assistant, Message, ToolReply, ToolSpec
from forethought.core.randomness import RolloutKey
from forethought.core.settings import Settings
from forethought.core.trajectory import Finish, Tokens

ThinkingHistory = Literal["keep", "strip"]
"""What a policy sees of its earlier thinking: all of it, or none (then a new segment starts)."""


class SamplingSettings(Settings):
    """How tokens are chosen, and what they continue. `temperature = 0` is greedy."""

    temperature: float = Field(default=1.0, ge=0)
    """Divides the logits; 0 takes the likeliest token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Keep the smallest set of tokens with this much probability. Train with 1."""
    max_tokens: int = Field(default=512, ge=1)
    """Sampled tokens in one turn at most."""
    thinking: ThinkingHistory = "keep"
    """Whether the model sees its earlier thinking again. `strip` repeats the conversation without
    it, in a row of its own, after each turn that thought: take it for models made that way."""
    reply_tokens: int = Field(default=0, ge=0)
    """Tokens that one tool reply may take in a local model's context, its frame included; of more,
    the beginning and the end. 0: a quarter of the context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """One turn that a policy spoke: parsed, and as numbers about its tokens."""

    message: Assistant
    finish: Finish
    tokens: int
    entropy: float
    weight_version: int
    temperature: float
    seconds: float


class Conversation(Protocol):
    """One open conversation. Leaving the context gives its place up."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def segments(self) -> tuple[Tokens, ...]:
        """What the policy saw and said so far."""
        ...

    async def speak(self, max_tokens: int) -> Spoken:
        """Continue with one assistant turn of at most `max_tokens` sampled tokens.

        Raises `PolicyError` when the engine breaks.
        """
        ...

    async def hear(self, replies: Sequence[ToolReply]) -> None:
        """Take in what tools replied; the policy speaks next."""
        ...


class Policy(Protocol):
    """A model that converses."""

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], key: RolloutKey
    ) -> Conversation:
        """Begin a conversation; every random choice in it derives from `key`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Tokens that a sampler chose for one turn, with what it knew about each.

    `logprobs` and `entropies` are at the sampling temperature over the full vocabulary, before
    any truncation by top-p; at temperature 0 they are those of temperature 1.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]
    finish: Finish
    weight_version: int


class Seat(Protocol):
    """A place at a sampler, held for as long as one conversation is open."""

    async def sample(
        self, ids: Sequence[int], stop: Sequence[int], settings: SamplingSettings, seed: int
    ) -> Sampled:
        """Continue `ids` until a token of `stop` (kept, as the last id) or a limit.

        Raises `PolicyError` when the engine breaks.
        """
        ...

    def leave(self) -> None:
        """Give the place up; a sampler that works in rounds no longer waits for it."""
        ...


class Sampler(Protocol):
    """Token ids in, token ids out."""

    def sit(self) -> Seat:
        """Take a place for one conversation."""
        ...
