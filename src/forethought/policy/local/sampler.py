"""A sampler over a crew: conversations take seats, and turns are sampled in rounds.

A round begins when every seated conversation waits for its turn (`deterministic`), or as soon as
the crew is free and anyone waits. Tools run while a round goes on, because each turn is handed
over the moment it ends. With `deterministic` the batches, and so every number to the bit, depend
only on what was said, never on how long a tool took.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from forethought.core.errors import ForethoughtError, PolicyError, boundary
from forethought.policy.local.crew import Crew
from forethought.policy.local.generate import Request, generate
from forethought.policy.local.replica import Emit, Replica
from forethought.policy.protocol import Sampled, SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    requests: tuple[Request, ...]
    version: int


def _generate(replica: Replica, share: _Share, emit: Emit) -> None:
    """The job: sample one worker's share of a round."""
    generate(
        replica.decoder,
        share.requests,
        share.version,
        lambda number, sampled: emit((number, sampled)),
    )


@dataclass(slots=True, eq=False)
class _Seat:
    """One conversation's place."""

    sampler: "LocalSampler"
    number: int

    async def sample(
        self, ids: Sequence[int], stop: Sequence[int], settings: SamplingSettings, seed: int
    ) -> Sampled:
        """Wait for the next round and for this turn to end in it."""
        request = Request(ids=tuple(ids), stop=frozenset(stop), settings=settings, seed=seed)
        return await self.sampler.wait(self.number, request)

    def leave(self) -> None:
        """Give the place up."""
        self.sampler.leave(self.number)


@dataclass(slots=True, eq=False)
class LocalSampler:
    """Samples for everyone who is seated. `version` counts the updates that the weights had."""

    crew: Crew
    deterministic: bool = True
    version: int = 0
    _seated: set[int] = field(default_factory=set[int])
    _taken: int = 0
    _waiting: dict[int, tuple[Request, asyncio.Future[Sampled]]] = field(
        default_factory=dict[int, tuple[Request, asyncio.Future[Sampled]]]
    )
    _round: asyncio.Task[None] | None = None

    def sit(self) -> _Seat:
        """Take a place."""
        self._taken += 1
        self._seated.add(self._taken)
        return _Seat(self, self._taken)

    def leave(self, number: int) -> None:
        """Give a place up; the others may have been waiting for it."""
        self._seated.discard(number)
        self._waiting.pop(number, None)
        self._soon()

    async def wait(self, number: int, request: Request) -> Sampled:
        """Queue one turn and wait for it."""
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, future)
        self._soon()
        return await future

    def _soon(self) -> None:
        """Look again once everyone who can still ask in this turn of the loop has asked."""
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        complete = len(self._waiting) == len(self._seated) or not self.deterministic
        if self._round is None and self._waiting and complete:
            self._round = asyncio.get_running_loop().create_task(self._sample_round())

    async def _sample_round(self) -> None:
        waiting = [self._waiting[number] for number in sorted(self._waiting)]
        self._waiting.clear()
        shares = _shares(waiting, self.crew.size)

        def hear(worker: int, value: tuple[int, Sampled]) -> None:
            number, sampled = value
            future = shares[worker][number][1]
            if not future.done():
                future.set_result(sampled)

        payloads = [
            _Share(requests=tuple(request for request, _ in share), version=self.version)
            for share in shares
        ]
        try:
            with boundary(PolicyError, "sampling"):
                await self.crew.run(_generate, payloads, hear)
        except ForethoughtError as error:
            _fail(waiting, error)
        finally:
            self._round = None
            _fail(waiting, PolicyError("the round ended without this turn"))
            self._soon()


def _fail(
    waiting: Sequence[tuple[Request, asyncio.Future[Sampled]]], error: ForethoughtError
) -> None:
    for _, future in waiting:
        if not future.done():
            future.set_exception(error)


def _shares(
    waiting: Sequence[tuple[Request, asyncio.Future[Sampled]]], workers: int
) -> list[Sequence[tuple[Request, asyncio.Future[Sampled]]]]:
    """Neighbours stay together (they share prompts); shares differ by one at most."""
    count = min(workers, len(waiting))
    edges = [len(waiting) * number // count for number in range(count + 1)]
    return [waiting[start:stop] for start, stop in pairwise(edges)]
