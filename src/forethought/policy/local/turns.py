"""One turn to sample, and how far it has come."""

from dataclasses import dataclass, field

from forethought.core.trajectory import Finish
from forethought.policy.protocol import Sampled, SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn to sample: the ids so far, the ids that end it, how, and its seed."""

    ids: tuple[int, ...]
    stop: frozenset[int]
    settings: SamplingSettings
    seed: int


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A turn being sampled for the conversation in `seat`; `context` is the model's limit."""

    seat: int
    request: Request
    context: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    entropies: list[float] = field(default_factory=list[float])

    @property
    def length(self) -> int:
        """Tokens given and sampled."""
        return len(self.request.ids) + len(self.ids)

    @property
    def newest(self) -> int:
        """The id that the model has to read to choose the next one."""
        return self.ids[-1] if self.ids else self.request.ids[-1]

    @property
    def finish(self) -> Finish | None:
        """Why the turn has ended; None while it goes on."""
        if self.ids and self.ids[-1] in self.request.stop:
            return Finish.END_OF_TURN
        if self.length >= self.context:
            return Finish.CONTEXT_FULL
        if len(self.ids) >= self.request.settings.max_tokens:
            return Finish.TOKEN_LIMIT
        return None

    def sampled(self, finish: Finish, version: int) -> Sampled:
        """The turn as it is handed over."""
        return Sampled(
            ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            entropies=tuple(self.entropies),
            finish=finish,
            weight_version=version,
        )
