"""What happened: tokens, turns, trajectories, episodes, and groups of episodes."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from forethought.core.messages import Assistant, Message, System, ToolReply, ToolSpec, User
from forethought.core.problem import Problem
from forethought.core.verdict import Outcome, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A stretch of tokens exactly as the policy saw them, never re-encoded from text.

    `sampled` marks the tokens that the policy chose; only they are trained on. `logprobs` are
    the policy's own at sampling time (natural logarithm, at the sampling temperature, over the
    full vocabulary), and 0.0 elsewhere.

    >>> said = Tokens(ids=(7, 2), sampled=(True, True), logprobs=(-0.5, -0.1))
    >>> Tokens.join((Tokens.given((1, 1)), said)).sampled
    (False, False, True, True)
    """

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.sampled) == len(self.logprobs):
            raise ValueError(
                "ids, sampled and logprobs must be equally long, got "
                f"{len(self.ids)}, {len(self.sampled)} and {len(self.logprobs)}"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def given(cls, ids: Iterable[int]) -> "Tokens":
        """Tokens that the world supplied: a prompt, template glue, or what a tool replied."""
        ids = tuple(ids)
        return cls(ids=ids, sampled=(False,) * len(ids), logprobs=(0.0,) * len(ids))

    @classmethod
    def join(cls, parts: Iterable["Tokens"]) -> "Tokens":
        """One stretch after the other."""
        parts = tuple(parts)
        return cls(
            ids=tuple(chain.from_iterable(part.ids for part in parts)),
            sampled=tuple(chain.from_iterable(part.sampled for part in parts)),
            logprobs=tuple(chain.from_iterable(part.logprobs for part in parts)),
        )


class Finish(StrEnum):
    """Why one turn ended."""

    END_OF_TURN = "end_of_turn"
    TOKEN_LIMIT = "token_limit"
    CONTEXT_FULL = "context_full"
    UNCLOSED_THINKING = "unclosed_thinking"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One assistant message with the replies to its calls, in the order of the calls.

    `tokens` counts the sampled tokens of the turn, `entropy` is their mean full-vocabulary
    entropy in nats (0.0 where the engine does not report it), `weight_version` says which
    weights spoke, `temperature` at which they were sampled (None: nobody sampled them),
    `seconds` how long that took. `heard` is what else was said to it before the next turn, as by
    a user who asks on.

    >>> Turn(message=Assistant(text="42"), finish=Finish.END_OF_TURN).replies
    ()
    """

    message: Assistant
    finish: Finish
    replies: tuple[ToolReply, ...] = ()
    tokens: int = 0
    entropy: float = 0.0
    weight_version: int = 0
    temperature: float | None = None
    seconds: float = 0.0
    heard: tuple[System | User, ...] = ()


class Stop(StrEnum):
    """Why a trajectory ended."""

    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    CONTEXT_FULL = "context_full"
    TIME_LIMIT = "time_limit"
    REFUSED = "refused"
    FAILED = "failed"


_LIMITS_OF_LENGTH = {Stop.TOKEN_LIMIT, Stop.CONTEXT_FULL}
_LIMITS = {Stop.TURN_LIMIT, Stop.TIME_LIMIT, *_LIMITS_OF_LENGTH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One agent's side of an episode, in words and in tokens.

    Usually one segment; several where a chat format drops earlier thinking, so that what the
    policy saw later does not extend what it saw before. A trajectory written by a person or a
    script has no segments: nobody sampled it. `error` is set only when `stop` is `FAILED`; its last
    line says what broke, what stands before it where. `tools` are those that the agent was told of
    where they are not the run's (None: they are).

    >>> from forethought.core.messages import User
    >>> ask = (User(text="6 * 7?"),)
    >>> say = Turn(message=Assistant(text="42"), finish=Finish.END_OF_TURN)
    >>> Trajectory(agent="a", opening=ask, turns=(say,), stop=Stop.ANSWERED).messages[-1].text
    '42'
    """

    agent: str
    opening: tuple[Message, ...]
    turns: tuple[Turn, ...]
    stop: Stop
    segments: tuple[Tokens, ...] = ()
    error: str = ""
    tools: tuple[ToolSpec, ...] | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation in order."""
        said = chain.from_iterable(
            (turn.message, *turn.replies, *turn.heard) for turn in self.turns
        )
        return (*self.opening, *said)

    @property
    def replies(self) -> tuple[ToolReply, ...]:
        """Every tool reply in order."""
        return tuple(chain.from_iterable(turn.replies for turn in self.turns))

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy chose."""
        return sum(turn.tokens for turn in self.turns)

    @property
    def truncated(self) -> bool:
        """Whether a limit of turns, tokens, context or time met the agent before it answered."""
        return self.stop in _LIMITS

    @property
    def too_long(self) -> bool:
        """Whether it was truncated for its length: by a limit of tokens, or a full context."""
        return self.stop in _LIMITS_OF_LENGTH

    @property
    def prefix_breaks(self) -> int:
        """How often what the policy saw did not extend what it had seen and said before."""
        return max(0, len(self.segments) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One attempt at a problem, by one agent or a team. `id` is unique within a run.

    >>> problem = Problem(id="p", prompt="6 * 7?", answer="42")
    >>> Episode(id="p/0", problem=problem, trajectories=(), verdict=Verdict.right()).measured
    True
    """

    id: str
    problem: Problem
    trajectories: tuple[Trajectory, ...]
    verdict: Verdict

    @property
    def measured(self) -> bool:
        """Whether the verdict says something about the policy."""
        return self.verdict.outcome is not Outcome.NOT_MEASURED

    @property
    def truncated(self) -> bool:
        """Whether a limit met one of its agents before it answered."""
        return any(trajectory.truncated for trajectory in self.trajectories)

    @property
    def right(self) -> bool:
        """Whether the attempt was measured and correct."""
        return self.verdict.outcome is Outcome.RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Attempts at one problem *instance*, compared with each other.

    `id` is made when the group is sampled: two draws of one problem are two groups.

    >>> problem = Problem(id="p", prompt="6 * 7?", answer="42")
    >>> Group(id="rl/0/0/p", problem=problem, episodes=()).measured
    ()
    """

    id: str
    problem: Problem
    episodes: tuple[Episode, ...]

    @property
    def measured(self) -> tuple[Episode, ...]:
        """The attempts whose verdict means something."""
        return tuple(episode for episode in self.episodes if episode.measured)
