"""Who computes: the model in this process, or copies of it in one-thread worker processes.

Small models are bound by the interpreter and by waiting, not by arithmetic: on a CPU, two
workers of one thread each do nearly twice the work of one process with two threads. Workers are
forked, so parameters are shared memory: what the optimiser writes here, they see.

One `run` at a time: another waits for its turn, because sampling may still be winding up when
a gradient is asked for. A *job* is a function `(replica, payload, emit) -> result`; a crew runs
one per worker at a time and does not know what jobs do.
"""

import asyncio
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from forethought.core.errors import PolicyError
from forethought.policy.local.decoder import Decoder

PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What a worker computes with. `gradient_N` is where it leaves its flat gradient.

    Without one (the model in this process) gradients stay in the parameters' `grad`.
    `reference` is a frozen copy of the model at the stage's start, where a loss asks for one.
    """

    model: nn.Module
    decoder: Decoder
    gradient_N: Tensor | None
    reference: Decoder | None

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that learn, in one fixed order."""
        return trained_parameters(self.model)


Emit = Callable[[Any], None]
Job = Callable[[Replica, Any, Emit], Any]


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


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that learn, in one fixed order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


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
        loop = asyncio.get_running_loop()
        async with self._turn:
            return await self._run(loop, job, payloads, emit)

    async def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        job: Job,
        payloads: Sequence[Any],
        emit: Callable[[int, Any], None],
    ) -> list[Any]:
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
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(workers):
            here, there = context.Pipe()
            inherited = [*self._pipes, here]
            process = context.Process(
                target=_serve,
                args=(there, model, reference, self._gradients_WN[number], inherited),
                daemon=True,
            )
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    async def run(
        self, job: Job, payloads: Sequence[Any], emit: Callable[[int, Any], None]
    ) -> list[Any]:
        """Give each worker one payload; payloads beyond the number of workers are refused."""
        if len(payloads) > self.size:
            raise ValueError(f"{len(payloads)} payloads for {self.size} workers")
        async with self._turn:
            answers = await asyncio.gather(
                *(self._ask(number, job, each, emit) for number, each in enumerate(payloads)),
                return_exceptions=True,  # a failed worker must not leave the others unheard
            )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _ask(
        self, number: int, job: Job, payload: Any, emit: Callable[[int, Any], None]
    ) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        pipe = self._pipes[number]

        def hear() -> None:
            try:
                kind, value = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                kind, value = "death", None
            if kind == "emit":
                emit(number, value)
                return
            loop.remove_reader(pipe.fileno())
            if answer.done():  # whoever asked was cancelled meanwhile
                return
            if kind == "death":
                answer.set_exception(PolicyError(f"model worker {number} died"))
            elif kind == "error":
                answer.set_exception(PolicyError(f"model worker {number} failed:\n{value}"))
            else:
                answer.set_result(value)

        loop.add_reader(pipe.fileno(), hear)
        try:
            pipe.send_bytes(pickle.dumps((job, payload), protocol=pickle.HIGHEST_PROTOCOL))
        except OSError as error:
            loop.remove_reader(pipe.fileno())
            raise PolicyError(f"model worker {number} died") from error
        return await answer

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
        for process in self._processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _serve(
    pipe: Connection,
    model: nn.Module,
    reference: nn.Module | None,
    gradient_N: Tensor,
    inherited: Sequence[Connection],
) -> None:
    """A worker's life: answer jobs until the other end of the pipe is closed."""
    for connection in inherited:
        connection.close()  # otherwise this process would keep its own pipe's other end open
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    torch.set_num_threads(1)
    replica = Replica(
        model=model,
        decoder=Decoder(model),
        gradient_N=gradient_N,
        reference=None if reference is None else Decoder(reference),
    )
    while True:
        try:
            job, payload = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        _answer(pipe, replica, job, payload)


def _die_with_parent() -> None:
    """A worker must not outlive a killed parent: it would hold the parent's locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _send(pipe: Connection, kind: str, value: Any) -> None:
    """By value: the library's own pickling would move each tensor into a shared file."""
    pipe.send_bytes(pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL))


def _answer(pipe: Connection, replica: Replica, job: Job, payload: Any) -> None:
    try:
        result = job(replica, payload, lambda value: _send(pipe, "emit", value))
    except Exception:  # noqa: BLE001 - a process edge: told to the other side, which raises it
        _send(pipe, "error", traceback.format_exc())
    else:
        _send(pipe, "done", result)
