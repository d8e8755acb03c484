"""A policy made of a chat format and a token sampler: words at the edges, tokens inside.

What was sampled is kept as it came; replies are encoded once and appended. Nothing that is
trained is decoded and encoded again. Where earlier thinking is kept, a conversation is one
segment. Where it is stripped, a new segment begins after each turn that thought: the conversation
is written again from its words without it, as context, and every sampled token stays in the one
segment in which it was sampled.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import TracebackType
from typing import Self

from forethought.core.messages import Message, ToolReply, ToolSpec
from forethought.core.randomness import RolloutKey
from forethought.core.trajectory import Finish, Tokens
from forethought.policy.formats import ChatFormat, stripped_history
from forethought.policy.protocol import Sampler, SamplingSettings, Seat, Spoken
from forethought.policy.replies import shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPolicy:
    """A model behind a token sampler, speaking through a chat format.

    One tool reply takes at most `reply_tokens` of its context; None: any number.
    """

    sampler: Sampler
    format: ChatFormat
    settings: SamplingSettings
    reply_tokens: int | None = None

    def open(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], key: RolloutKey
    ) -> "TokenConversation":
        """Begin a conversation."""
        return TokenConversation(policy=self, opening=tuple(messages), tools=tuple(tools), key=key)


@dataclass(slots=True, kw_only=True, eq=False)
class TokenConversation:
    """One conversation, as tokens."""

    policy: TokenPolicy
    opening: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    key: RolloutKey
    _seat: Seat | None = None
    _messages: list[Message] = field(default_factory=list[Message])
    _closed: list[Tokens] = field(default_factory=list[Tokens])
    _parts: list[Tokens] = field(default_factory=list[Tokens])
    _thought: bool = False
    _turns: int = 0
    _calls: int = 0

    async def __aenter__(self) -> Self:
        """Take a seat and encode the opening."""
        self._messages = list(self.opening)
        self._parts = [self._written()]
        self._seat = self.policy.sampler.sit()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the seat up."""
        if self._seat is not None:
            self._seat.leave()

    @property
    def segments(self) -> tuple[Tokens, ...]:
        """Everything so far: one stretch, or one for each time that thinking was stripped."""
        return (*self._closed, Tokens.join(self._parts))

    async def speak(self, max_tokens: int) -> Spoken:
        """Sample one turn and read it."""
        if self._seat is None:
            raise ValueError("a conversation is entered before it speaks")
        began = time.perf_counter()
        settings = self.policy.settings
        sampled = await self._seat.sample(
            Tokens.join(self._parts).ids,
            (self.policy.format.end_of_turn,),
            settings.model_copy(update={"max_tokens": min(max_tokens, settings.max_tokens)}),
            self.key.turn_seed(self._turns),
        )
        self._turns += 1
        self._parts.append(
            Tokens(ids=sampled.ids, sampled=(True,) * len(sampled.ids), logprobs=sampled.logprobs)
        )
        parsed = self.policy.format.read(sampled.ids, self.tools, self._calls)
        self._calls += len(parsed.message.calls)
        self._messages.append(parsed.message)
        self._thought = bool(parsed.message.thinking)
        unclosed = parsed.unclosed_thinking and sampled.finish is Finish.END_OF_TURN
        return Spoken(
            message=parsed.message,
            finish=Finish.UNCLOSED_THINKING if unclosed else sampled.finish,
            tokens=len(sampled.ids),
            entropy=fmean(sampled.entropies) if sampled.entropies else 0.0,
            weight_version=sampled.weight_version,
            temperature=settings.temperature,
            seconds=time.perf_counter() - began,
        )

    async def hear(self, replies: Sequence[ToolReply]) -> None:
        """Append the replies, encoded once; or begin a new segment that forgets the thinking.

        Of a reply that takes too many tokens, the two ends.
        """
        seen = shortened(self.policy.format, replies, self.policy.reply_tokens)
        self._messages.extend(seen)
        if self._thought and self._strips:
            self._closed.append(Tokens.join(self._parts))
            self._parts = [self._written()]
        else:
            self._parts.append(Tokens.given(self.policy.format.hear(seen)))

    @property
    def _strips(self) -> bool:
        return self.policy.settings.thinking == "strip"

    def _written(self) -> Tokens:
        """The conversation so far as a prompt, written from its words."""
        messages = stripped_history(self._messages) if self._strips else self._messages
        return Tokens.given(self.policy.format.opening(messages, self.tools))
