"""Who computes: the model in this process, or copies of it in one-thread worker processes.

Small models are bound by the interpreter and by waiting, not by arithmetic: on a CPU, two
workers of one thread each do nearly twice the work of one process with two threads. Workers are
forked, so parameters are shared memory: what the optimiser writes here, they see.

One `run` at a time: another waits for its turn, because sampling may still be winding up when
a gradient is asked for. A crew runs one job per worker at a time and does not know what jobs do.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import current_thread, main_thread
from typing import Any, Protocol

import torch
from torch import nn

from forethought.core.errors import PolicyError, boundary
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.fused import fuse
from forethought.policy.local.replica import CLOSED, Job, Port, Replica, trained_parameters
from forethought.policy.local.worker import Estate, Worker, fork_worker


class FewerWorkersError(PolicyError):
    """Fewer workers are alive than payloads were made for; those can still be asked."""


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
        """Run `job` on up to `size` payloads; `emit(place, value)` hears what each emits.

        The last thing heard of a payload whose job failed is the `PolicyError` that it failed
        with. Raises the first of them once the other jobs have ended.
        """
        ...

    def tell(self, place: int, message: Any) -> None:
        """Let the job of the payload at that place hear something (see `Port`)."""
        ...

    def collect_gradients(self) -> None:
        """Add the replicas' gradients up in the model's parameters."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class LocalCrew:
    """The model in this process, its jobs in one thread: for a GPU, or a model that fills cores.

    OpenMP keeps a pool of threads for each thread that has computed with several, and as soon as
    all pools together have more threads than there are cores, theirs sleep between any two
    operations: a step of SmolLM2 takes a third longer then. So all jobs share a thread, and the
    rest of the process should compute with one thread (`torch.set_num_threads(1)`).
    """

    def __init__(
        self,
        model: nn.Module,
        reference: nn.Module | None = None,
        dtype: torch.dtype = torch.float32,
        threads: int | None = None,
    ) -> None:
        """Use `model` where it is; jobs compute with so many `threads` (None: as torch is set)."""
        decoder = Decoder(model)  # which refuses what nothing here could compute
        fuse(model)
        self.model = model
        self.size = 1
        self._turn = asyncio.Lock()
        self._told: SimpleQueue[Any] = SimpleQueue()
        self._thread = ThreadPoolExecutor(1, "crew", _computing_with, (threads,))
        self._replica = Replica(
            model=model,
            decoder=decoder,
            reference=None if reference is None else Decoder(reference),
            dtype=dtype,
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

        self._told = SimpleQueue()  # what was told to an earlier job is not for this one
        port = Port(emit=say, inbox=self._told)
        try:
            with boundary(PolicyError, "a job"):
                return [
                    await loop.run_in_executor(self._thread, job, self._replica, each, port)
                    for each in payloads
                ]
        except PolicyError as error:
            say(error)
            raise
        finally:
            await asyncio.sleep(0)  # what the thread emitted last is heard before the results

    def run_now(self, job: Job, payloads: Sequence[Any]) -> list[Any]:
        """Run the job and wait for it; what it emits is heard by nobody."""
        self._told = SimpleQueue()
        port = Port(emit=lambda value: None, inbox=self._told)
        with _interrupted_at_once():
            return [
                self._thread.submit(job, self._replica, each, port).result() for each in payloads
            ]

    def tell(self, place: int, message: Any) -> None:
        """Let the job at work hear something."""
        self._told.put(message)

    def collect_gradients(self) -> None:
        """Nothing to do: there is one replica, and its gradients are the model's."""

    def close(self) -> None:
        """End the job at work at its next look."""
        self._told.put(CLOSED)
        self._thread.shutdown(wait=False)


class ForkedCrew:
    """Workers of one thread each, forked from this process, with shared parameters.

    A worker that dies is not replaced: to fork a process that runs threads is not safe.
    """

    def __init__(
        self,
        model: nn.Module,
        workers: int,
        reference: nn.Module | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Fork `workers` processes.

        No other thread of this process may compute meanwhile: a worker would wait for ever for a
        lock that such a thread holds as it is copied.
        """
        Decoder(model)  # which refuses what nothing here could compute
        fuse(model)
        self.model = model.share_memory()
        self._turn = asyncio.Lock()
        trained = trained_parameters(model)
        self._gradients_WN = torch.zeros(workers, sum(each.numel() for each in trained))
        self._gradients_WN.share_memory_()
        estate = Estate(
            model=model, reference=reference, gradients_WN=self._gradients_WN, dtype=dtype
        )
        self._workers: list[Worker] = []
        self._at_work: list[Worker] = []
        try:
            for _ in range(workers):
                self._workers.append(fork_worker(estate, self._workers))
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """How many workers are alive."""
        return len(self._alive())

    async def run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        """Give each payload a worker; more payloads than workers are refused.

        Raises `FewerWorkersError` where one has died since the payloads were made.
        """
        answers = await _in_turn(self._turn, lambda: self._run(job, payloads, emit))
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        alive = self._alive()
        if not alive:
            raise PolicyError("every model worker died; run the same command again: it resumes")
        if len(payloads) > len(self._workers):
            raise ValueError(f"{len(payloads)} payloads for {len(self._workers)} workers")
        if len(payloads) > len(alive):
            raise FewerWorkersError(
                f"a model worker died, and {len(payloads)} were asked for something; run the same "
                "command again: it resumes"
            )
        self._at_work = alive[: len(payloads)]

        async def ask(place: int, worker: Worker) -> Any:
            try:
                return await worker.ask(job, payloads[place], lambda value: emit(place, value))
            except PolicyError as error:
                emit(place, error)
                raise

        return await asyncio.gather(
            *(ask(place, worker) for place, worker in enumerate(self._at_work)),
            return_exceptions=True,  # a failed worker must not leave the others unheard
        )

    def run_now(self, job: Job, payloads: Sequence[Any]) -> list[Any]:
        """Run the job on the workers and wait for them; what it emits is heard by nobody."""
        asked = list(zip(self._workers, payloads, strict=False))
        with _interrupted_at_once():
            for worker, payload in asked:
                worker.ask_now(job, payload)
            return [worker.answer_now() for worker, _ in asked]

    def tell(self, place: int, message: Any) -> None:
        """Let the job of one of the workers at work hear something."""
        self._at_work[place].tell(message)

    def collect_gradients(self) -> None:
        """Sum the workers' flat gradients into the parameters, in the workers' order."""
        total_N = self._gradients_WN[[worker.number for worker in self._at_work]].sum(0)
        start = 0
        for parameter in trained_parameters(self.model):
            stop = start + parameter.numel()
            parameter.grad = total_N[start:stop].view_as(parameter)
            start = stop

    def close(self) -> None:
        """End the workers at once, at work or not: they hold nothing that is not here too."""
        for worker in self._workers:
            worker.kill()

    def _alive(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.alive]


@contextmanager
def _interrupted_at_once() -> Generator[None]:
    """Let Ctrl-C raise where this thread waits: an event loop would wait until it is back there."""
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or before is None or isinstance(before, int):
        yield  # signals come elsewhere, or Ctrl-C does here what the system has it do
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _computing_with(threads: int | None) -> None:
    if threads is not None:
        torch.set_num_threads(threads)


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
