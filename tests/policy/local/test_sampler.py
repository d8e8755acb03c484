"""Who waits for whom, who remembers whom, and what happens when the engine breaks."""

import asyncio
import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass, field
from queue import SimpleQueue

import pytest
import torch

from forethought.core.errors import PolicyError
from forethought.core.trajectory import Finish
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import Port, Replica
from forethought.policy.local.sampler import LocalSampler, LostReplica
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
from policy.local.test_continuous import full_logprobs
from tiny import GREEDY, network

SETTINGS = SamplingSettings(max_tokens=4)
LONG = SamplingSettings(max_tokens=400, temperature=0.0)


@dataclass
class ScriptedCrew:
    """Answers every request with its own first id, once it is let go; notes what it is told.

    In rounds it halts as replicas do: when as many turns have ended as go on.
    """

    size: int = 1
    model: torch.nn.Module = field(default_factory=torch.nn.Identity)
    told: list[tuple[int, str, list[int]]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[asyncio.Event] = field(default_factory=list)
    emit: object = None
    answers: list[asyncio.Future] = field(default_factory=list)
    in_rounds: bool = False
    going_on: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    halted: dict[int, bool] = field(default_factory=dict)

    @property
    def turns(self):
        """The first ids of the turns that each replica was told of, in order."""
        return [(place, ids) for place, kind, ids in self.told if kind == "Turns"]

    async def run(self, job, payloads, emit):
        self.emit = emit
        self.in_rounds = payloads[0]
        self.stopped = [asyncio.Event() for _ in payloads]
        for place in range(len(payloads)):
            emit(place, Listening())
        for each in self.stopped:
            await each.wait()
        return [None] * len(payloads)

    def tell(self, place, message):
        match message:
            case Turns(requests=requests, version=version):
                self.told.append((place, "Turns", [one.ids[0] for _, one in requests]))
                self.going_on[place] = self.going_on.get(place, 0) + len(requests)
                self.ended[place], self.halted[place] = 0, False
                self.answers.append(asyncio.ensure_future(self.answer(place, requests, version)))
            case Over(seat=seat):
                self.told.append((place, "Over", [seat]))
            case Stop():
                self.stopped[place].set()

    async def answer(self, place, requests, version):
        await self.gate.wait()
        for seat, request in requests:
            self.end(place, seat, answer(request.ids[0], version))

    def end(self, place, seat, sampled):
        """A turn is complete."""
        self.emit(place, Ended(seat=seat, sampled=sampled))
        self.going_on[place] -= 1
        self.ended[place] += 1
        if self.in_rounds and not self.halted[place]:
            self.halted[place] = self.ended[place] >= self.going_on[place]
            if self.halted[place]:
                self.emit(place, Halted())

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


def scripted(*, deterministic=True, size=1, held=False):
    crew = ScriptedCrew(size=size)
    if not held:
        crew.gate.set()
    return crew, LocalSampler(crew=crew, deterministic=deterministic)


def asked(seat, first, settings=SETTINGS):
    return asyncio.ensure_future(seat.sample((first, 2), (0,), settings, seed=first))


async def alone(seat, first, settings=SETTINGS):
    """A conversation of one turn."""
    sampled = await asked(seat, first, settings)
    seat.leave()
    return sampled


async def two_ended_of(count):
    """A round of so many turns, of which the first two have ended."""
    crew, sampler = scripted(held=True)
    seats = [sampler.sit() for _ in range(count)]
    for n, seat in enumerate(seats):
        asked(seat, n)
    await settle()
    for seat in seats[:2]:
        crew.end(0, seat.number, answer(9, 0))
    await settle()
    return crew, seats


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_round_waits_for_every_seat():
    async def run():
        crew, sampler = scripted()
        seats = [sampler.sit() for _ in range(3)]
        turns = [asked(seats[n], n) for n in (2, 0)]
        await settle()
        assert crew.turns == []
        turns.append(asked(seats[1], 1))
        await asyncio.gather(*turns)
        return crew.turns

    assert asyncio.run(run()) == [(0, [0, 1, 2])]  # in the order of the seats, not of the asking


def test_leaving_a_seat_lets_the_others_go():
    async def run():
        crew, sampler = scripted()
        staying, going = sampler.sit(), sampler.sit()
        turn = asked(staying, 5)
        await settle()
        assert crew.turns == []
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
        return crew.turns

    assert asyncio.run(run()) == [(0, [2])]


def test_without_determinism_a_turn_begins_at_once_whoever_is_at_work():
    async def run():
        crew, sampler = scripted(deterministic=False, held=True)
        seats = [sampler.sit() for _ in range(3)]
        asked(seats[0], 1)
        await settle()
        asked(seats[1], 2)
        await settle()
        return crew.turns

    assert asyncio.run(run()) == [(0, [1]), (0, [2])]


def test_with_determinism_a_round_begins_when_half_of_the_turns_have_ended():
    async def run():
        crew, sampler = scripted(held=True)
        seats = [sampler.sit() for _ in range(4)]
        turns = [asked(seat, n) for n, seat in enumerate(seats)]
        await settle()
        for seat, first in ((seats[1], 11), (seats[0], 10)):
            crew.end(0, seat.number, answer(9, 0))
            await settle()
            asked(seat, first)
            await settle()
        assert [turn.done() for turn in turns] == [True, True, False, False]
        return crew.turns

    assert asyncio.run(run()) == [(0, [0, 1, 2, 3]), (0, [10, 11])]


def test_a_round_waits_for_what_every_ended_turn_leads_to():
    async def run():
        crew, seats = await two_ended_of(4)
        asked(seats[1], 11)
        await settle()
        assert len(crew.turns) == 1  # the first conversation's tool is still at work
        seats[0].leave()
        await settle()
        return crew.turns

    assert asyncio.run(run()) == [(0, [0, 1, 2, 3]), (0, [11])]


def test_those_at_work_go_on_when_all_whose_turn_ended_have_left():
    async def run():
        crew, seats = await two_ended_of(3)
        for seat in seats[:2]:
            seat.leave()
        await settle()
        return crew.turns

    assert asyncio.run(run()) == [(0, [0, 1, 2]), (0, [])]


def test_a_replica_does_not_wait_for_another_ones_round():
    async def run():
        crew, sampler = scripted(size=2, held=True)
        seats = [sampler.sit() for _ in range(4)]
        for n, seat in enumerate(seats):
            asked(seat, n)
        await settle()
        crew.end(1, seats[2].number, answer(9, 0))
        await settle()
        asked(seats[2], 12)
        await settle()
        return crew.turns

    assert asyncio.run(run()) == [(0, [0, 1]), (1, [2, 3]), (1, [12])]


def test_a_newcomer_waits_until_everybody_waits():
    async def run():
        crew, sampler = scripted(held=True)
        first, second = sampler.sit(), sampler.sit()
        for n, seat in enumerate((first, second)):
            asked(seat, n)
        await settle()
        asked(sampler.sit(), 5)
        await settle()
        assert crew.turns == [(0, [0, 1])]
        for seat in (first, second):
            crew.end(0, seat.number, answer(9, 0))
        first.leave()
        await settle()
        asked(second, 6)
        await settle()
        return crew.turns

    assert asyncio.run(run())[-1] == (0, [6, 5])


@pytest.mark.parametrize("asks", ["before the death", "after it"])
def test_a_conversation_whose_replica_died_goes_on_beside_those_of_another(asks):
    async def run():
        crew, sampler = scripted(size=2, held=True)
        seats = [sampler.sit() for _ in range(4)]
        for n, seat in enumerate(seats):
            asked(seat, n)
        await settle()
        for seat in seats[2:]:
            crew.end(1, seat.number, answer(9, 0))
        await settle()
        if asks == "before the death":
            asked(seats[2], 12)
        with pytest.warns(LostReplica, match="worker 1 died"):
            crew.emit(1, WorkerDiedError("model worker 1 died"))
        if asks == "after it":
            asked(seats[2], 12)
        crew.end(0, seats[0].number, answer(9, 0))
        await settle()
        assert len(crew.turns) == 2
        asked(seats[0], 10)
        await settle()
        return crew.turns[2:]  # though the tool of the last conversation is still at work

    assert asyncio.run(run()) == [(0, [10, 12])]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_rounds_numbers_do_not_depend_on_how_long_tools_take(workers):
    async def conversation(seat, number, pause):
        ids, heard = [number + 1, 2], []
        for turn in range(3):
            settings = SamplingSettings(max_tokens=5 + 7 * ((number + turn) % 4))
            sampled = await seat.sample(ids, (0,), settings, seed=10 * turn + number)
            heard.append((sampled.ids, sampled.logprobs))
            if turn == number % 3:
                break
            await asyncio.sleep(pause(number, turn))
            ids += [*sampled.ids, 3]
        seat.leave()
        return heard

    async def run(crew, pause):
        sampler = LocalSampler(crew=crew)
        seats = [sampler.sit() for _ in range(9)]
        return await asyncio.gather(
            *(conversation(seat, number, pause) for number, seat in enumerate(seats))
        )

    found = []
    for pause in (lambda *_: 0, lambda number, turn: 0.01 * ((number * 7 + turn * 3) % 5)):
        crew = ForkedCrew(network(), workers) if workers else LocalCrew(network())
        try:
            found.append(asyncio.run(run(crew, pause)))
        finally:
            crew.close()
    assert found[0] == found[1]


def test_neighbours_share_a_replica_and_shares_differ_by_one_at_most():
    async def run(seats, workers):
        crew, sampler = scripted(size=workers)
        places = [sampler.sit() for _ in range(seats)]
        await asyncio.gather(*(asked(seat, n) for n, seat in enumerate(places)))
        return crew.turns

    assert asyncio.run(run(5, 2)) == [(0, [0, 1, 2]), (1, [3, 4])]
    assert asyncio.run(run(2, 4)) == [(0, [0]), (1, [1])]


def test_a_conversation_stays_with_the_replica_that_has_read_it():
    async def run():
        crew, sampler = scripted(size=2, deterministic=False)
        seats = [sampler.sit() for _ in range(4)]
        await asyncio.gather(*(asked(seat, n) for n, seat in enumerate(seats)))
        seats[0].leave()
        seats[1].leave()
        crew.told.clear()
        await asked(seats[3], 7)
        await asyncio.gather(asked(sampler.sit(), 8), asked(sampler.sit(), 9))
        return crew.turns

    assert asyncio.run(run()) == [(1, [7]), (0, [8, 9])]


def test_the_crew_is_free_once_nobody_is_seated():
    async def run():
        crew, sampler = scripted(size=2)
        first, second = sampler.sit(), sampler.sit()
        await asyncio.gather(asked(first, 1), asked(second, 2))
        first.leave()
        await settle()
        assert not crew.stopped[0].is_set()
        second.leave()
        await settle()
        return [each.is_set() for each in crew.stopped], crew.told[2:]

    assert asyncio.run(run()) == ([True, True], [(0, "Over", [1]), (1, "Over", [2])])


def test_the_version_of_the_weights_is_that_of_the_rounds_beginning():
    async def run():
        _, sampler = scripted()
        seat = sampler.sit()
        before = await asked(seat, 1)
        sampler.version = 8
        return before.weight_version, (await asked(seat, 1)).weight_version

    assert asyncio.run(run()) == (0, 8)


def test_a_seat_samples_what_the_model_says_whoever_sits_beside_it():
    async def run(crew, others):
        sampler = LocalSampler(crew=crew)
        seats = [sampler.sit() for _ in range(others + 1)]
        turns = [alone(seat, 3 + n, GREEDY) for n, seat in enumerate(seats)]
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


def test_what_a_dead_worker_was_asked_another_says():
    async def run(crew, kill):
        sampler = LocalSampler(crew=crew)
        victim, *_ = await crew.run(process_id, [None] * crew.size, lambda place, value: None)
        seats = [sampler.sit() for _ in range(4)]

        async def two_turns(seat, first):
            said = await asked(seat, first, LONG)
            again = await alone(seat, first)
            return said.ids, again.ids

        turns = [asyncio.ensure_future(two_turns(seat, n + 1)) for n, seat in enumerate(seats)]
        if kill:
            await asyncio.sleep(0.05)
            os.kill(victim, signal.SIGKILL)
        return await asyncio.gather(*turns), crew.size

    results = []
    for kill in (False, True):
        crew = ForkedCrew(network(), 2)
        try:
            with pytest.warns(LostReplica, match="worker 0 died") if kill else nullcontext():
                results.append(asyncio.run(run(crew, kill)))
        finally:
            crew.close()
    (whole, both), (rescued, one) = results
    assert rescued == whole
    assert (both, one) == (2, 1)


def test_when_every_worker_is_dead_turns_fail_with_the_reason():
    async def run():
        crew = ForkedCrew(network(), 1)
        try:
            sampler = LocalSampler(crew=crew)
            (victim,) = await crew.run(process_id, [None], lambda place, value: None)
            os.kill(victim, signal.SIGKILL)
            os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
            await asked(sampler.sit(), 1)
        finally:
            crew.close()

    with pytest.raises(PolicyError, match=r"every model worker died.*resumes"):
        asyncio.run(run())


def test_turns_that_waited_for_a_worker_which_died_meanwhile_are_sampled_by_the_others():
    async def run(crew):
        sampler = LocalSampler(crew=crew)
        begun = asyncio.Event()
        _, victim = await crew.run(process_id, [None, None], lambda place, value: None)
        winding_up = asyncio.create_task(
            crew.run(goes_on, [None, None], lambda place, value: begun.set())
        )
        await begun.wait()
        turn = asyncio.create_task(alone(sampler.sit(), 1))
        await asyncio.sleep(0.05)  # until the turn waits for the crew, which has two workers still
        os.kill(victim, signal.SIGKILL)
        crew.tell(0, "enough")
        with pytest.raises(WorkerDiedError):
            await winding_up
        return await turn

    crew = ForkedCrew(network(), 2)
    try:
        assert asyncio.run(run(crew)).ids
    finally:
        crew.close()


def goes_on(replica, payload, port):
    port("begun")
    port.wait()


def test_a_session_that_ended_leaves_nobody_a_home_and_the_next_one_finds_new_ones():
    async def run():
        crew, sampler = scripted(size=2)
        seats = [sampler.sit() for _ in range(2)]

        async def homes():
            await asyncio.gather(*(asked(seat, n + 1) for n, seat in enumerate(seats)))
            return [seat.home for seat in seats]

        first = await homes()
        for each in crew.stopped:
            each.set()
        await asyncio.sleep(0.05)
        between = [seat.home for seat in seats]
        return first, between, await homes()

    assert asyncio.run(run()) == ([0, 1], [None, None], [0, 1])


def test_an_error_that_no_turn_fails_of_is_said():
    async def run():
        crew, sampler = scripted(size=2)
        await asked(sampler.sit(), 1)
        with pytest.warns(LostReplica, match="no weights to read"):
            crew.emit(1, PolicyError("no weights to read"))

    asyncio.run(run())


def test_that_a_replica_is_gone_is_no_news_once_it_was_told_to_stop(recwarn):
    async def run(error):
        crew, sampler = scripted()
        await alone(sampler.sit(), 1)
        crew.emit(0, error)

    asyncio.run(run(WorkerDiedError("model worker 0 died")))
    assert recwarn.list == []
    asyncio.run(run(PolicyError("no weights to give back")))
    assert [str(one.message).partition(": ")[2] for one in recwarn] == ["no weights to give back"]


def test_a_replica_without_a_turn_takes_part_in_one_session_after_another(recwarn):
    async def run(crew):
        sampler = LocalSampler(crew=crew)
        for first in range(3):
            await alone(sampler.sit(), first + 1)
        await crew.run(process_id, [None, None], lambda place, value: None)

    crew = ForkedCrew(network(), 2)
    try:
        asyncio.run(run(crew))
    finally:
        crew.close()
    assert [str(one.message) for one in recwarn] == []


def test_a_conversation_goes_on_by_new_weights_as_if_they_had_read_it_all():
    model = network()

    async def run():
        sampler = LocalSampler(crew=LocalCrew(model))
        seat = sampler.sit()
        first = await seat.sample((1, 2, 3), (0,), SETTINGS, seed=1)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.1)
        sampler.version = 1
        history = (1, 2, 3, *first.ids, 5, 6)
        second = await seat.sample(history, (0,), SETTINGS, seed=2)
        seat.leave()
        return history, second

    history, second = asyncio.run(run())
    assert second.weight_version == 1
    expected = full_logprobs(model, history, second.ids, 1.0)
    torch.testing.assert_close(torch.tensor(second.logprobs), expected, rtol=0, atol=1e-4)


def test_weights_that_change_while_a_turn_goes_on_are_an_error():
    model = network()
    replica = Replica(model=model, decoder=Decoder(model))
    request = Request(ids=(1, 2), stop=frozenset(), settings=SETTINGS, seed=0)
    port = Port(emit=lambda value: None, inbox=SimpleQueue())
    for version in (0, 1):
        port.inbox.put(Turns(requests=((version, request),), version=version))
    port.inbox.put(Stop())
    with pytest.raises(ValueError, match="version 1 came while turns of version 0"):
        take_turns(replica, False, port)


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
