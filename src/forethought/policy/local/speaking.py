"""The job of a replica that samples: it joins turns as they come until it is told to stop.

Covers one side of a conversation with `LocalSampler`, which covers the other. A replica that goes
*in rounds* halts as soon as as many turns have ended as go on, and goes on when it is told of the
next ones: what shares a batch then never depends on when it was told.
"""

from dataclasses import dataclass

from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.replica import Port, Replica
from forethought.policy.local.turns import Request
from forethought.policy.protocol import Sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Said first: the replica can be told of turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halted:
    """Said in rounds: nothing is sampled until the next `Turns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Told: turns to begin at once, each with its seat, by the weights of that version.

    None, where a replica that has halted shall go on with those that it has.
    """

    requests: tuple[tuple[int, Request], ...]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Told: this seat's conversation is over, or goes on elsewhere."""

    seat: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Told: every conversation is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Said: this seat's turn is complete."""

    seat: int
    sampled: Sampled


def take_turns(replica: Replica, in_rounds: bool, port: Port) -> None:
    """The job: begin turns as they are told, say each as it ends, until `Stop`."""
    port(Listening())
    speech = _Speech(replica=replica, port=port, in_rounds=in_rounds)
    while True:
        for message in port.heard() if speech.goes_on else port.wait():
            match message:
                case Turns():
                    speech.begin(message)
                case Over():
                    speech.batch.forget(message.seat)
                case Stop():
                    replica.inference.weights.release()
                    return
                case _:
                    raise TypeError(f"a sampling job was told {message!r}")
        speech.step()


class _Speech:
    """A replica's batch, made anew for each version of the weights."""

    def __init__(self, replica: Replica, port: Port, *, in_rounds: bool) -> None:
        self._inference = replica.inference
        self._port = port
        self._in_rounds = in_rounds
        self._halted = True
        self._ended = 0
        self._version: int | None = None
        self.batch = ContinuousBatch(self._inference, 0)

    @property
    def goes_on(self) -> bool:
        """Whether there is anything to do before the next message."""
        return self.batch.busy and not (self._in_rounds and self._halted)

    def begin(self, turns: Turns) -> None:
        if turns.version != self._version:
            if self.batch.busy:
                raise ValueError(
                    f"weights of version {turns.version} came while turns of version "
                    f"{self._version} went on; change weights between turns"
                )
            self._version = turns.version
            self._inference.weights.refresh()
            self.batch = ContinuousBatch(self._inference, turns.version)
        for seat, request in turns.requests:
            self.batch.admit(seat, request)
        if self._halted:
            self._halted, self._ended = False, 0

    def step(self) -> None:
        if self._halted and self._in_rounds:
            return
        for seat, sampled in self.batch.step():
            self._ended += 1
            self._port(Ended(seat=seat, sampled=sampled))
        # Half of them: fewer would let the batch run empty, more would wait for tools often.
        if self._in_rounds and self._ended >= self.batch.rows:
            self._halted = True
            self._port(Halted())
