"""One forked process that holds a replica: asked here, answering there.

Its parameters are shared memory. It lives until it is killed, or until its parent is gone. A
thread of its own reads what it is told, so that telling never waits for a job's next look.
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
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn

from forethought.core.errors import ForethoughtError, PolicyError, boundary
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import GoneError, Job, Port, Replica

PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""


class WorkerDiedError(GoneError):
    """A worker process is gone; what it was doing can be done by another."""


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A forked process and this end of its pipe. It is asked one thing at a time."""

    number: int
    process: BaseProcess
    pipe: Connection
    _answer: asyncio.Future[Any] | None = None

    async def ask(self, job: Job, payload: Any, emit: Callable[[Any], None]) -> Any:
        """What the job returns there; `emit` hears what it emits."""
        if self.pipe.closed:
            raise self._death()
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        loop.add_reader(self.pipe.fileno(), self._hear, answer, emit)
        try:
            _send(self.pipe, "job", (job, payload))
            return await answer
        except OSError as error:
            raise self._death() from error
        finally:
            self._stop_listening()

    def ask_now(self, job: Job, payload: Any) -> None:
        """Ask without an event loop; `answer_now` waits for what the job returns."""
        _send(self.pipe, "job", (job, payload))

    def answer_now(self) -> Any:
        """Wait for the answer to `ask_now`."""
        while True:
            try:
                kind, value = pickle.loads(self.pipe.recv_bytes())
            except (EOFError, OSError) as error:
                raise self._death() from error
            if kind == "done":
                return value
            if kind == "error":
                raise PolicyError(f"model worker {self.number} failed:\n{value}")

    def tell(self, message: Any) -> None:
        """Let the job at work hear something; nobody hears it when there is none."""
        with suppress(OSError):  # a death is told to whoever asked
            _send(self.pipe, "told", message)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self.pipe.closed and self.process.is_alive()

    def kill(self) -> None:
        """End the process, and with it the wait of whoever asked."""
        self.process.kill()
        self.process.join()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._death())
        self._stop_listening()
        self.pipe.close()

    def _hear(self, answer: asyncio.Future[Any], emit: Callable[[Any], None]) -> None:
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            kind, value = "death", None
        if kind == "emit":
            emit(value)
        elif answer.done():
            return  # the answer was here already when the worker died
        elif kind == "done":
            answer.set_result(value)
        elif kind == "error":
            answer.set_exception(PolicyError(f"model worker {self.number} failed:\n{value}"))
        else:
            answer.set_exception(self._death())

    def _stop_listening(self) -> None:
        if self._answer is not None:
            self._answer.get_loop().remove_reader(self.pipe.fileno())
            self._answer = None

    def _death(self) -> WorkerDiedError:
        self.process.join(1.0)
        code = self.process.exitcode
        how = f" (signal {-code})" if code is not None and code < 0 else ""
        return WorkerDiedError(f"model worker {self.number} died{how}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Estate:
    """What every worker inherits; `gradients_WN` has a row for the flat gradient of each."""

    model: nn.Module
    reference: nn.Module | None
    gradients_WN: Tensor
    dtype: torch.dtype

    def replica(self, number: int) -> Replica:
        """What one worker computes with."""
        return Replica(
            model=self.model,
            decoder=Decoder(self.model),
            gradient_N=self.gradients_WN[number],
            reference=None if self.reference is None else Decoder(self.reference),
            dtype=self.dtype,
        )


def fork_worker(estate: Estate, earlier: Sequence[Worker]) -> Worker:
    """One more worker beside the `earlier` ones."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    number = len(earlier)
    inherited = [*(worker.pipe for worker in earlier), here]
    process = context.Process(target=_serve, args=(there, estate, number, inherited), daemon=True)
    process.start()
    there.close()
    return Worker(number=number, process=process, pipe=here)


def _serve(pipe: Connection, estate: Estate, number: int, inherited: Sequence[Connection]) -> None:
    """A worker's life: answer jobs until the other end of the pipe is closed."""
    for connection in inherited:
        connection.close()  # otherwise this process would keep its own pipe's other end open
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    torch.set_num_threads(1)
    replica = estate.replica(number)
    jobs: SimpleQueue[tuple[Job, Any, SimpleQueue[Any]]] = SimpleQueue()
    Thread(target=_listen, args=(pipe, jobs), daemon=True).start()
    while True:
        job, payload, inbox = jobs.get()
        port = Port(emit=lambda value: _send(pipe, "emit", value), inbox=inbox)
        _answer(pipe, replica, port, job, payload)


def _listen(pipe: Connection, jobs: "SimpleQueue[tuple[Job, Any, SimpleQueue[Any]]]") -> None:
    """Sort what comes into jobs and what the latest of them is told."""
    inbox: SimpleQueue[Any] = SimpleQueue()
    while True:
        try:
            kind, value = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        if kind == "job":
            inbox = SimpleQueue()  # what an earlier job was told too late is not for this one
            jobs.put((*value, inbox))
        else:
            inbox.put(value)


def _die_with_parent() -> None:
    """A worker must not outlive a killed parent: it would hold the parent's locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _send(pipe: Connection, kind: str, value: Any) -> None:
    """By value: the library's own pickling would move each tensor into a shared file."""
    pipe.send_bytes(pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL))


def _answer(pipe: Connection, replica: Replica, port: Port, job: Job, payload: Any) -> None:
    try:
        with boundary(PolicyError, "a job"):
            result = job(replica, payload, port)
    except ForethoughtError:  # told to the other side, which raises it
        _send(pipe, "error", traceback.format_exc())
    else:
        _send(pipe, "done", result)
