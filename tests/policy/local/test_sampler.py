"""Turns are sampled in rounds: who waits for whom, and what happens when the engine breaks."""

import asyncio
import os
import signal
from dataclasses import dataclass, field

import pytest
import torch

from forethought.core.errors import PolicyError
from forethought.core.trajectory import Finish
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.sampler import LocalSampler
from forethought.policy.protocol import Sampled, SamplingSettings
from tiny import GREEDY, network

SETTINGS = SamplingSettings(max_tokens=4)


@dataclass
class ScriptedCrew:
    """Answers every request with its own first id; a round lasts until it is let go."""

    size: int = 1
    model: torch.nn.Module = field(default_factory=torch.nn.Identity)
    rounds: list[list[list[int]]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    silent: bool = False

    async def run(self, job, payloads, emit):
        self.rounds.append([[one.ids[0] for one in each.requests] for each in payloads])
        if not self.silent:
            for worker, payload in enumerate(payloads):
                for number, request in enumerate(payload.requests):
                    emit(worker, (number, answer(request.ids[0], payload.version)))
        await self.gate.wait()
        return [None] * len(payloads)

    def collect_gradients(self):
        pass

    def close(self):
        pass


def answer(token, version):
    return Sampled(
        ids=(token,),
        logprobs=(-1.0,),
        entropies=(1.0,),
        finish=Finish.END_OF_TURN,
        weight_version=version,
    )


def scripted(*, deterministic=True, size=1, held=False, silent=False):
    crew = ScriptedCrew(size=size, silent=silent)
    if not held:
        crew.gate.set()
    return crew, LocalSampler(crew=crew, deterministic=deterministic)


def asked(seat, first, settings=SETTINGS):
    return asyncio.ensure_future(seat.sample((first, 2), (0,), settings, seed=first))


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_round_waits_for_every_seat():
    async def run():
        crew, sampler = scripted()
        seats = [sampler.sit() for _ in range(3)]
        turns = [asked(seats[n], n) for n in (2, 0)]
        await settle()
        assert crew.rounds == []
        turns.append(asked(seats[1], 1))
        await asyncio.gather(*turns)
        return crew.rounds

    assert asyncio.run(run()) == [[[0, 1, 2]]]  # in the order of the seats, not of the asking


def test_leaving_a_seat_lets_the_others_go():
    async def run():
        crew, sampler = scripted()
        staying, going = sampler.sit(), sampler.sit()
        turn = asked(staying, 5)
        await settle()
        assert crew.rounds == []
        going.leave()
        return (await turn).ids

    assert asyncio.run(run()) == (5,)


def test_a_seat_that_is_left_while_it_waits_is_not_sampled():
    async def run():
        crew, sampler = scripted()
        first, second = sampler.sit(), sampler.sit()
        given_up = asked(first, 1)
        await settle()
        given_up.cancel()
        first.leave()
        await asked(second, 2)
        return crew.rounds

    assert asyncio.run(run()) == [[[2]]]


def test_without_determinism_a_round_begins_at_once():
    async def run():
        crew, sampler = scripted(deterministic=False)
        first, _ = sampler.sit(), sampler.sit()
        await asked(first, 1)
        return crew.rounds

    assert asyncio.run(run()) == [[[1]]]


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_turn_is_handed_over_before_its_round_ends_and_the_next_round_waits(deterministic):
    async def run():
        crew, sampler = scripted(deterministic=deterministic, held=True)
        seat = sampler.sit()
        assert (await asked(seat, 1)).ids == (1,)
        later = asked(seat, 2)
        await settle()
        assert crew.rounds == [[[1]]]
        crew.gate.set()
        assert (await later).ids == (2,)
        return crew.rounds

    assert asyncio.run(run()) == [[[1]], [[2]]]


def test_neighbours_share_a_worker_and_shares_differ_by_one_at_most():
    async def run(seats, workers):
        crew, sampler = scripted(size=workers)
        places = [sampler.sit() for _ in range(seats)]
        await asyncio.gather(*(asked(seat, n) for n, seat in enumerate(places)))
        return crew.rounds[0]

    assert asyncio.run(run(5, 2)) == [[0, 1], [2, 3, 4]]
    assert asyncio.run(run(2, 4)) == [[0], [1]]


def test_the_version_of_the_weights_is_that_of_the_rounds_beginning():
    async def run():
        _, sampler = scripted()
        seat = sampler.sit()
        before = await asked(seat, 1)
        sampler.version = 8
        return before.weight_version, (await asked(seat, 1)).weight_version

    assert asyncio.run(run()) == (0, 8)


def test_a_turn_that_its_round_forgot_fails_instead_of_waiting_for_ever():
    async def run():
        _, sampler = scripted(silent=True)
        await asked(sampler.sit(), 1)

    with pytest.raises(PolicyError, match="ended without this turn"):
        asyncio.run(run())


def test_a_seat_samples_what_the_model_says_whoever_sits_beside_it():
    async def run(crew, others):
        sampler = LocalSampler(crew=crew)
        seats = [sampler.sit() for _ in range(others + 1)]
        turns = [asked(seat, 3 + n, GREEDY) for n, seat in enumerate(seats)]
        return (await asyncio.gather(*turns))[0].ids

    crew = ForkedCrew(network(), 2)
    try:
        crowded = asyncio.run(run(crew, 6))
    finally:
        crew.close()
    assert crowded == asyncio.run(run(LocalCrew(network()), 0))
    assert crowded


def process_id(replica, payload, emit):
    return os.getpid()


def test_a_dead_worker_fails_the_turns_it_had_and_not_the_process():
    crew = ForkedCrew(network(), 2)

    async def run():
        sampler = LocalSampler(crew=crew)
        victim, _ = await crew.run(process_id, [None, None], lambda worker, value: None)
        os.kill(victim, signal.SIGKILL)
        seats = [sampler.sit() for _ in range(4)]
        turns = [asked(seat, n + 1) for n, seat in enumerate(seats)]
        return await asyncio.gather(*turns, return_exceptions=True)

    try:
        lost, also_lost, kept, also_kept = asyncio.run(run())
    finally:
        crew.close()
    for each in (lost, also_lost):
        assert isinstance(each, PolicyError)
        assert "model worker 0 died" in str(each)
    assert len(kept.ids) == len(also_kept.ids) == SETTINGS.max_tokens


def test_a_model_that_breaks_in_this_process_fails_the_turn_with_its_reason():
    async def run():
        sampler = LocalSampler(crew=LocalCrew(network()))
        await asked(sampler.sit(), 10**6)  # no such token

    with pytest.raises(PolicyError, match="IndexError"):
        asyncio.run(run())


def test_the_sampler_goes_on_after_a_round_that_broke():
    async def run():
        sampler = LocalSampler(crew=LocalCrew(network()))
        seat = sampler.sit()
        with pytest.raises(PolicyError):
            await asked(seat, 10**6)
        return (await asked(seat, 1)).ids

    assert len(asyncio.run(run())) == SETTINGS.max_tokens
