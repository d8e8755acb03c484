"""A sampler over a crew: conversations take seats, and their turns join the batch of a replica.

Each seat has a home: the replica that remembers what its conversation has read. With
`deterministic`, turns begin in rounds. The first ones begin when every seated conversation waits
for one. Then a replica halts as soon as as many turns have ended as go on, and goes on, with the
next turns of those conversations, once each of them has asked for one or left. The batches, and so
every number to the bit, then depend only on what was said, never on how long a tool took. Without,
a turn joins as soon as it is asked for. Tools run while others speak in both cases.

The replicas listen for as long as anybody is seated. Then they are free, for gradients say.
"""

import asyncio
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forethought.core.errors import ForethoughtError, PolicyError, boundary
from forethought.policy.local.crew import Crew, FewerWorkersError
from forethought.policy.local.replica import GoneError
from forethought.policy.local.rounds import Rounds
from forethought.policy.local.speaking import (
    Ended,
    Halted,
    Listening,
    Over,
    Stop,
    Turns,
    take_turns,
)
from forethought.policy.local.turns import Request
from forethought.policy.local.worker import WorkerDiedError
from forethought.policy.protocol import Sampled, SamplingSettings


class LostReplica(UserWarning):
    """A replica failed, and no turn with it."""


@dataclass(slots=True, eq=False)
class _Seat:
    """One conversation's place. `home` is where its past is remembered, once it has one."""

    sampler: "LocalSampler"
    number: int
    home: int | None = None
    asked: Request | None = None
    answer: asyncio.Future[Sampled] | None = None

    async def sample(
        self, ids: Sequence[int], stop: Sequence[int], settings: SamplingSettings, seed: int
    ) -> Sampled:
        """Wait for this turn to be sampled.

        In rounds others may wait until this conversation asks for its next turn or leaves.
        """
        self.asked = Request(ids=tuple(ids), stop=frozenset(stop), settings=settings, seed=seed)
        self.answer = asyncio.get_running_loop().create_future()
        self.sampler.ask(self)
        return await self.answer

    def leave(self) -> None:
        """Give the place up."""
        self.sampler.leave(self)

    def hear(self, sampled: Sampled) -> None:
        """The turn has ended."""
        self.asked = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(sampled)

    def fail(self, error: ForethoughtError) -> None:
        """The turn cannot be had."""
        self.asked = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class LocalSampler:
    """Samples for everyone who is seated. `version` counts the updates that the weights had."""

    crew: Crew
    deterministic: bool = True
    version: int = 0
    _taken: int = 0
    _seated: dict[int, _Seat] = field(default_factory=dict[int, _Seat])
    _waiting: dict[int, _Seat] = field(default_factory=dict[int, _Seat])
    _session: "_Session | None" = None

    def sit(self) -> _Seat:
        """Take a place."""
        self._taken += 1
        seat = self._seated[self._taken] = _Seat(self, self._taken)
        return seat

    def leave(self, seat: _Seat) -> None:
        """Give a place up; the others may have been waiting for it."""
        self._seated.pop(seat.number, None)
        self._waiting.pop(seat.number, None)
        if self._session is not None:
            self._session.forget(seat)
            if not self._seated:
                self._session.stop()
                self._session = None
        self.soon()

    def ask(self, seat: _Seat) -> None:
        """Queue the turn that a seat has asked for."""
        self._waiting[seat.number] = seat
        if self._session is not None:
            self._session.settle(seat)
        self.soon()

    def soon(self) -> None:
        """Look again once everyone who can still ask in this turn of the loop has asked."""
        asyncio.get_running_loop().call_soon(self._begin)

    def begin_anew(self) -> None:
        """No replica remembers anything any more: the next session finds homes for everyone."""
        for seat in self._seated.values():
            seat.home = None
        self.soon()

    def give_up(self, error: ForethoughtError) -> None:
        """No replica could be had: fail every turn that waits for one."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for seat in waiting:
            seat.fail(error)

    def _begin(self) -> None:
        everyone = len(self._waiting) == len(self._seated)
        if self._session is None or self._session.over:
            if self._waiting and (everyone or not self.deterministic):
                self._session = _Session(self)
            return
        if not self._session.ready:
            return
        if not self.deterministic:
            self._session.begin(self._take(self._waiting), self.version)
        elif not everyone:
            self._session.rehouse([self._waiting[number] for number in sorted(self._waiting)])
            for place in sorted(self._session.complete):
                at_home = [number for number, seat in self._waiting.items() if seat.home == place]
                self._session.go_on(place, self._take(at_home), self.version)
        elif self._waiting and self._session.all_complete:
            self._session.begin(self._take(self._waiting), self.version)

    def _take(self, numbers: Iterable[int]) -> list[_Seat]:
        """Of those that wait, these, in the order in which they sat down."""
        return [self._waiting.pop(number) for number in sorted(numbers)]


class _Session:
    """One stretch of sampling: the crew listens from its beginning until `stop`."""

    def __init__(self, sampler: LocalSampler) -> None:
        """Wait for the crew's turn; the sampler is told when there may be more to do."""
        self._sampler = sampler
        self._crew = sampler.crew
        self._size = max(1, sampler.crew.size)  # an empty crew says itself what is wrong
        self._listening: set[int] = set()
        self._heard_of: set[int] = set()
        self._at_work: dict[int, _Seat] = {}
        self._rounds = Rounds()
        self._loads: dict[int, int] = {}
        self._version = sampler.version
        self._stopped = False
        self.over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def ready(self) -> bool:
        """Whether every replica listens or has failed."""
        return len(self._heard_of) == self._size and bool(self._listening)

    @property
    def complete(self) -> set[int]:
        """The replicas that have halted and can go on: it is known who takes a turn next."""
        return self._rounds.complete

    @property
    def all_complete(self) -> bool:
        """Whether every replica that listens can go on."""
        return self._rounds.complete == self._listening

    def begin(self, seats: Sequence[_Seat], version: int) -> None:
        """Tell each seat's home of the turn that it asks for; find homes for those without."""
        self._house([seat for seat in seats if seat.home not in self._listening])
        for place in sorted(self._listening):
            if at_home := [seat for seat in seats if seat.home == place]:
                self._tell(place, at_home, version)

    def rehouse(self, seats: Sequence[_Seat]) -> None:
        """Find homes for the seats that had one which is lost: they go on beside those there."""
        lost = (seat for seat in seats if seat.home is not None)
        self._house([seat for seat in lost if seat.home not in self._listening])

    def go_on(self, place: int, seats: Sequence[_Seat], version: int) -> None:
        """Let a replica go on with the turns that it has and with those of its seats, if any."""
        if seats or any(seat.home == place for seat in self._at_work.values()):
            self._tell(place, seats, version)

    def _tell(self, place: int, seats: Sequence[_Seat], version: int) -> None:
        turns = tuple((seat.number, seat.asked) for seat in seats if seat.asked is not None)
        self._version = version
        self._rounds.begin(place)
        self._at_work.update({seat.number: seat for seat in seats})
        self._crew.tell(place, Turns(requests=turns, version=version))

    def settle(self, seat: _Seat) -> None:
        """The seat has asked for a turn."""
        self._rounds.settle(seat.home, seat.number)

    def forget(self, seat: _Seat) -> None:
        """The seat was left."""
        self._at_work.pop(seat.number, None)
        self._rounds.settle(seat.home, seat.number)
        if seat.home in self._listening:
            self._loads[seat.home] -= 1
            self._crew.tell(seat.home, Over(seat=seat.number))

    def stop(self) -> None:
        """Nobody is seated any more: free the crew."""
        self._stopped = True
        for place in self._listening:
            self._crew.tell(place, Stop())

    async def _run(self) -> None:
        reason: ForethoughtError = PolicyError("sampling ended without this turn")
        try:
            with boundary(PolicyError, "sampling"):
                in_rounds = self._sampler.deterministic
                await self._crew.run(take_turns, [in_rounds] * self._size, self._hear)
        except ForethoughtError as error:
            reason = error
        finally:
            self.over = True
            if not self._stopped:  # a loop that closes must not wait for open conversations
                self.stop()
            for seat in self._at_work.values():
                seat.fail(reason)
            if not self._heard_of and not isinstance(reason, FewerWorkersError):
                self._sampler.give_up(reason)
            self._sampler.begin_anew()

    def _hear(self, place: int, value: Any) -> None:
        match value:
            case Listening():
                self._listening.add(place)
                self._loads[place] = 0
                self._rounds.halt(place)
                if self._stopped:
                    self._crew.tell(place, Stop())
            case Ended():
                seat = self._at_work.pop(value.seat, None)
                if seat is not None:
                    self._rounds.end(place, seat.number)
                    seat.hear(value.sampled)
                return
            case Halted():
                self._rounds.halt(place)
            case _:
                self._lose(place, value)
        self._heard_of.add(place)
        self._sampler.soon()

    def _lose(self, place: int, error: PolicyError) -> None:
        """A replica has failed: what a dead one was doing the others can do.

        Warns (`LostReplica`) where no turn fails of it, unless a replica is gone that was told to
        stop.
        """
        self._listening.discard(place)
        self._rounds.lose(place)
        lost = [seat for seat in self._at_work.values() if seat.home == place]
        if isinstance(error, WorkerDiedError) and self._listening:
            self.begin(lost, self._version)
            lost = []
        for seat in lost:
            del self._at_work[seat.number]
            seat.fail(error)
        if not lost and not (self._stopped and isinstance(error, GoneError)):
            warnings.warn(
                f"a replica was lost, no turn with it: {error}", LostReplica, stacklevel=2
            )

    def _house(self, homeless: Sequence[_Seat]) -> None:
        """Give each a replica that listens: neighbours stay together, for they begin alike."""
        given = dict.fromkeys(sorted(self._listening), 0)
        for _ in homeless:
            place = min(given, key=lambda place: (self._loads[place] + given[place], place))
            given[place] += 1
        homes = [place for place, number in given.items() for _ in range(number)]
        for seat, home in zip(homeless, homes, strict=True):
            seat.home = home
            self._loads[home] += 1
