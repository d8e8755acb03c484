"""Who computes: in this process or in forked ones, with the same results and no leftovers."""

import asyncio
import os
import signal
import time
from queue import SimpleQueue

import psutil
import pytest
import torch

from forethought.core.errors import PolicyError
from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.crew import FewerWorkersError, ForkedCrew, LocalCrew
from forethought.policy.local.turns import Request
from forethought.policy.local.worker import fork_worker
from tiny import GREEDY, network


def greedy(replica, prompts, port):
    return continued(replica.inference, prompts)


def continued(inference, prompts):
    batch = ContinuousBatch(inference, 0)
    for seat, ids in enumerate(prompts):
        batch.admit(seat, Request(ids=ids, stop=frozenset(), settings=GREEDY, seed=0))
    said = {}
    while batch.busy:
        said |= dict(batch.step())
    return [said[seat].ids for seat in range(len(prompts))]


def table_of_reference(replica, payload, port):
    return replica.reference.embedding.tolist()


def first_weight(replica, payload, emit):
    return next(replica.model.parameters()).detach().flatten()[0].item()


def own_process(replica, payload, emit):
    return os.getpid()


def counts_up(replica, upto, emit):
    for number in range(upto):
        emit(number)
    return "done"


def breaks(replica, payload, emit):
    raise ZeroDivisionError(f"no luck with {payload}")


def dies(replica, payload, emit):
    os.kill(os.getpid(), signal.SIGKILL)


def marks_its_time(replica, payload, emit):
    for _ in range(3):
        emit(payload)
        torch.randn(200, 200) @ torch.randn(200, 200)


def begins_and_takes_a_while(replica, payload, emit):
    emit("begun")
    time.sleep(0.1)


def begins_and_ends(replica, payload, emit):
    emit("begun")
    time.sleep(0.1)
    emit("ended")
    return "stale"


def begins_and_never_ends(replica, payload, emit):
    emit("begun")
    while True:
        time.sleep(1)


def silent(worker, value):
    assert isinstance(value, PolicyError), f"worker {worker} emitted {value}"


@pytest.fixture(params=["in process", "forked"])
def crew(request):
    model = network()
    crew = LocalCrew(model) if request.param == "in process" else ForkedCrew(model, 2)
    yield crew
    crew.close()


@pytest.fixture
def forked():
    crew = ForkedCrew(network(), 2)
    yield crew
    crew.close()


def test_forked_workers_say_what_the_model_here_says(forked):
    prompts = [[(1, 2, 3), (4, 5)], [(6,), (7, 8, 9)]]
    theirs = asyncio.run(forked.run(greedy, prompts, silent))
    here = LocalCrew(network())
    assert theirs == [asyncio.run(here.run(greedy, [each], silent))[0] for each in prompts]


def test_what_a_job_emits_is_heard_in_order_and_before_its_result(crew):
    heard = []

    async def run():
        results = await crew.run(counts_up, [5], lambda worker, value: heard.append(value))
        return results, list(heard)

    assert asyncio.run(run()) == (["done"], [0, 1, 2, 3, 4])


def test_one_run_at_a_time(crew):
    heard = []

    async def run(name):
        await crew.run(marks_its_time, [name], lambda worker, value: heard.append(value))

    async def both():
        await asyncio.gather(run("first"), run("second"))

    asyncio.run(both())
    assert heard == ["first"] * 3 + ["second"] * 3


def test_workers_see_weights_that_are_changed_here(crew):
    with torch.no_grad():
        next(crew.model.parameters()).flatten()[0] = 4.5
    assert asyncio.run(crew.run(first_weight, [None], silent)) == [4.5]


def test_each_payload_has_a_worker_of_its_own(forked):
    one, other = asyncio.run(forked.run(own_process, [None, None], silent))
    assert len({one, other, os.getpid()}) == 3


def test_more_payloads_than_workers_are_refused(forked):
    with pytest.raises(ValueError, match="3 payloads for 2 workers"):
        asyncio.run(forked.run(counts_up, [1, 1, 1], silent))


def test_a_job_that_breaks_is_told_with_its_reason_and_the_crew_goes_on(forked):
    with pytest.raises(PolicyError, match="ZeroDivisionError: no luck with 3"):
        asyncio.run(forked.run(breaks, [3, 4], silent))
    assert asyncio.run(forked.run(counts_up, [0, 0], silent)) == ["done", "done"]


def test_a_worker_that_dies_at_work_is_an_error_and_not_the_end(forked):
    with pytest.raises(PolicyError, match="model worker 0 died"):
        asyncio.run(forked.run(dies, [None], silent))


def test_an_answer_that_nobody_waits_for_any_more_is_no_error(forked):
    complaints = []

    async def cancel_at_work():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
        begun = asyncio.Event()
        work = asyncio.create_task(
            forked.run(begins_and_takes_a_while, [None], lambda worker, value: begun.set())
        )
        await begun.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await asyncio.sleep(0.4)

    asyncio.run(cancel_at_work())
    assert complaints == []


def test_a_run_that_was_cancelled_at_work_is_over_before_the_next_begins(crew):
    heard = []

    async def cancel_then_run():
        begun = asyncio.Event()

        def hear(worker, value):
            heard.append(value)
            begun.set()

        work = asyncio.create_task(crew.run(begins_and_ends, [None], hear))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        heard.append("cancelled")
        return await crew.run(counts_up, [1], hear)

    assert asyncio.run(cancel_then_run()) == ["done"]
    assert heard == ["begun", "cancelled", "ended", 0]


def test_a_run_that_was_cancelled_before_its_turn_is_never_begun(crew):
    heard = []

    async def cancel_a_waiting_one():
        begun = asyncio.Event()

        def hear(worker, value):
            heard.append(value)
            begun.set()

        first = asyncio.create_task(crew.run(begins_and_ends, [None], hear))
        await begun.wait()
        second = asyncio.create_task(crew.run(counts_up, [9], hear))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await crew.run(counts_up, [1], hear)

    asyncio.run(cancel_a_waiting_one())
    assert heard == ["begun", "ended", 0]


def test_closing_ends_a_cancelled_run_at_work_and_those_that_wait_for_it(forked):
    async def close_at_work():
        begun = asyncio.Event()
        work = asyncio.create_task(
            forked.run(begins_and_never_ends, [None], lambda worker, value: begun.set())
        )
        await begun.wait()
        work.cancel()
        waiting = asyncio.create_task(forked.run(counts_up, [1], silent))
        await asyncio.sleep(0)
        forked.close()
        return await asyncio.gather(work, waiting, return_exceptions=True)

    cancelled, refused = asyncio.run(close_at_work())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(refused, PolicyError)


def test_the_loop_does_not_listen_to_a_closed_crew():
    async def close_at_work():
        crew = ForkedCrew(network(), 1)
        begun = asyncio.Event()
        work = asyncio.create_task(
            crew.run(begins_and_never_ends, [None], lambda worker, value: begun.set())
        )
        await begun.wait()
        work.cancel()
        crew.close()
        numbers = os.pipe()  # the lowest that are free: the one that the crew's pipe had is back
        await asyncio.gather(work, return_exceptions=True)
        for number in numbers:
            os.close(number)
        return [asyncio.get_running_loop().remove_reader(number) for number in numbers]

    assert asyncio.run(close_at_work()) == [False, False]


def test_payloads_for_a_worker_that_is_known_to_be_gone_are_refused_with_the_remedy(forked):
    _, victim = asyncio.run(forked.run(own_process, [None, None], silent))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(PolicyError, match="model worker 1 died"):
        asyncio.run(forked.run(own_process, [None, None], silent))
    with pytest.raises(FewerWorkersError, match="the same command again: it resumes"):
        asyncio.run(forked.run(own_process, [None, None], silent))
    assert len(asyncio.run(forked.run(own_process, [None], silent))) == forked.size == 1


def test_a_worker_that_cannot_be_forked_takes_the_others_with_it(monkeypatch):
    begun = []

    def fork_one(estate, earlier):
        if earlier:
            raise BlockingIOError("no process left")
        begun.append(fork_worker(estate, earlier))
        return begun[-1]

    monkeypatch.setattr("forethought.policy.local.crew.fork_worker", fork_one)
    with pytest.raises(BlockingIOError):
        ForkedCrew(network(), 2)
    assert not begun[0].alive


def test_a_worker_that_died_before_is_found_out(forked):
    _, victim = asyncio.run(forked.run(own_process, [None, None], silent))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(PolicyError, match="model worker 1 died"):
        asyncio.run(forked.run(own_process, [None, None], silent))


def test_closing_leaves_no_process():
    crew = ForkedCrew(network(), 2)
    workers = asyncio.run(crew.run(own_process, [None, None], silent))
    assert all(psutil.pid_exists(each) for each in workers)
    crew.close()
    assert not any(psutil.pid_exists(each) for each in workers)


def test_a_crew_may_be_closed_twice_and_in_any_order():
    first, second = ForkedCrew(network(), 1), ForkedCrew(network(), 1)
    workers = [asyncio.run(each.run(own_process, [None], silent))[0] for each in (first, second)]
    first.close()
    second.close()
    first.close()
    assert not any(psutil.pid_exists(each) for each in workers)


def test_a_frozen_reference_reaches_the_workers():
    crew = ForkedCrew(network(seed=0), 1, reference=network(seed=1))
    try:
        (theirs,) = asyncio.run(crew.run(table_of_reference, [None], silent))
        assert theirs == network(seed=1).model.embed_tokens.weight.tolist()
    finally:
        crew.close()


def interrupts(replica, who, port):
    """Ctrl-C for that process, and work that goes on until it is put away."""
    os.kill(who, signal.SIGINT)
    for _ in range(300):
        port.heard()
        time.sleep(0.01)


@pytest.fixture
def heard():
    """Ctrl-C is heard, also in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_who_waits_for_a_crew_is_interrupted_at_once_though_an_event_loop_runs(crew):
    went_on = []

    async def wait():
        crew.run_now(interrupts, [os.getpid()])
        went_on.append(True)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(wait())
    assert went_on == []
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("heard")
def test_closing_ends_a_job_that_was_waited_for_at_its_next_look():
    ended = SimpleQueue()

    def job(replica, payload, port):
        try:
            interrupts(replica, payload, port)
        except PolicyError as error:
            ended.put(str(error))
        else:
            ended.put("at its own end")

    crew = LocalCrew(network())
    with pytest.raises(KeyboardInterrupt):
        crew.run_now(job, [os.getpid()])
    crew.close()
    assert "put away" in ended.get()


def hears_once(replica, payload, port):
    port("listening")
    return port.wait()


def test_what_a_job_was_told_too_late_the_next_one_does_not_hear(crew):
    async def run():
        async def listen(word):
            listening = asyncio.Event()
            work = asyncio.create_task(
                crew.run(hears_once, [None], lambda place, value: listening.set())
            )
            await listening.wait()
            crew.tell(0, word)
            return await work

        first = await listen("first")
        crew.tell(0, "too late")
        return first, await listen("second")

    assert asyncio.run(run()) == ([["first"]], [["second"]])
