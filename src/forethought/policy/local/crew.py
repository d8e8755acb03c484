"""Who computes: the model in this process, or copies of it in one-thread worker processes.

Small models are bound by the interpreter and by waiting, not by arithmetic: on a CPU, two
workers of one thread each do nearly twice the work of one process with two threads. Workers are
forked, so parameters are shared memory: what the optimiser writes here, they see.

One `run` at a time: another waits for its turn, because sampling may still be winding up when
a gradient is asked for. A crew runs one job per worker at a time and does not know what jobs do.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import Job, Replica, trained_parameters
from forethought.policy.local.worker import Worker, fork_worker


class Crew(Protocol):
    """One or more replicas of a model, run side by side."""

    @property
    def model(self) -> nn.Module:
        """The model whose parameters everyone computes with."""
        ...

    @property
    def size(self) -> int:
        """How many jobs run at once."""
        ...

    async def run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        """Run `job` on up to `size` payloads; `emit(worker, value)` hears what each emits.

        Raises `PolicyError` when a worker dies, with what it said last.
        """
        ...

    def collect_gradients(self) -> None:
        """Add the replicas' gradients up in the model's parameters."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class LocalCrew:
    """The model in this process, its jobs in a thread: for a GPU, or a model that fills cores."""

    def __init__(self, model: nn.Module, reference: nn.Module | None = None) -> None:
        """Use `model` where it is."""
        self.model = model
        self.size = 1
        self._turn = asyncio.Lock()
        self._replica = Replica(
            model=model,
            decoder=Decoder(model),
            gradient_N=None,
            reference=None if reference is None else Decoder(reference),
        )

    async def run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        """Run the one job in a thread, so that tools and agents go on meanwhile."""
        return await _in_turn(self._turn, lambda: self._run(job, payloads, emit))

    async def _run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        loop = asyncio.get_running_loop()

        def say(value: Any) -> None:
            loop.call_soon_threadsafe(emit, 0, value)

        results = [await asyncio.to_thread(job, self._replica, each, say) for each in payloads]
        await asyncio.sleep(0)  # what the thread emitted last is heard before the results
        return results

    def collect_gradients(self) -> None:
        """Nothing to do: there is one replica, and its gradients are the model's."""

    def close(self) -> None:
        """Nothing to end."""


class ForkedCrew:
    """Workers of one thread each, forked from this process, with shared parameters."""

    def __init__(self, model: nn.Module, workers: int, reference: nn.Module | None = None) -> None:
        """Fork `workers` processes. Call before threads or an event loop are started."""
        self.model = model.share_memory()
        self._turn = asyncio.Lock()
        self.size = workers
        trained = trained_parameters(model)
        self._gradients_WN = torch.zeros(workers, sum(each.numel() for each in trained))
        self._gradients_WN.share_memory_()
        self._workers: list[Worker] = []
        for gradient_N in self._gradients_WN:
            self._workers.append(fork_worker(model, reference, gradient_N, self._workers))

    async def run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        """Give each worker one payload; payloads beyond the number of workers are refused."""
        if len(payloads) > self.size:
            raise ValueError(f"{len(payloads)} payloads for {self.size} workers")
        answers = await _in_turn(self._turn, lambda: self._run(job, payloads, emit))
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        asked = zip(self._workers, payloads, strict=False)  # there may be workers to spare
        return await asyncio.gather(
            *(worker.ask(job, payload, emit) for worker, payload in asked),
            return_exceptions=True,  # a failed worker must not leave the others unheard
        )

    def collect_gradients(self) -> None:
        """Sum the workers' flat gradients into the parameters, in the workers' order."""
        total_N = self._gradients_WN.sum(0)
        start = 0
        for parameter in trained_parameters(self.model):
            stop = start + parameter.numel()
            parameter.grad = total_N[start:stop].view_as(parameter)
            start = stop

    def close(self) -> None:
        """End the workers at once, at work or not: they hold nothing that is not here too."""
        for worker in self._workers:
            worker.kill()


async def _in_turn(
    turn: asyncio.Lock, work: Callable[[], Coroutine[Any, Any, list[Any]]]
) -> list[Any]:
    """What `work` returns. It keeps its turn until it has ended, wanted or not.

    Whoever is cancelled goes at once, but a worker goes on: nobody else may hear its answer.
    """
    await turn.acquire()
    task = asyncio.create_task(work())
    task.add_done_callback(lambda _: turn.release())
    return await asyncio.shield(task)
