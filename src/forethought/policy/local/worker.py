"""One forked process that holds a replica: asked here, answering there.

Its parameters are shared memory. It lives until it is killed, or until its parent is gone.
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
from typing import Any

import torch
from torch import Tensor, nn

from forethought.core.errors import ForethoughtError, PolicyError, boundary
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import Job, Replica

PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """A forked process and this end of its pipe. It is asked one thing at a time."""

    number: int
    process: BaseProcess
    pipe: Connection
    _answer: asyncio.Future[Any] | None = None

    async def ask(self, job: Job, payload: Any, emit: Callable[[int, Any], None]) -> Any:
        """What the job returns there; `emit` hears what it emits."""
        if self.pipe.closed:
            raise self._death()
        loop = asyncio.get_running_loop()
        answer = self._answer = loop.create_future()
        loop.add_reader(self.pipe.fileno(), self._hear, answer, emit)
        try:
            self.pipe.send_bytes(pickle.dumps((job, payload), protocol=pickle.HIGHEST_PROTOCOL))
            return await answer
        except OSError as error:
            raise self._death() from error
        finally:
            self._stop_listening()

    def kill(self) -> None:
        """End the process, and with it the wait of whoever asked."""
        self.process.kill()
        self.process.join()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._death())
        self._stop_listening()
        self.pipe.close()

    def _hear(self, answer: asyncio.Future[Any], emit: Callable[[int, Any], None]) -> None:
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            kind, value = "death", None
        if kind == "emit":
            emit(self.number, value)
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

    def _death(self) -> PolicyError:
        return PolicyError(f"model worker {self.number} died")


def fork_worker(
    model: nn.Module, reference: nn.Module | None, gradient_N: Tensor, earlier: Sequence[Worker]
) -> Worker:
    """One more worker beside the `earlier` ones; it leaves its flat gradient in `gradient_N`."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    inherited = [*(worker.pipe for worker in earlier), here]
    process = context.Process(
        target=_serve, args=(there, model, reference, gradient_N, inherited), daemon=True
    )
    process.start()
    there.close()
    return Worker(number=len(earlier), process=process, pipe=here)


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
        with boundary(PolicyError, "a job"):
            result = job(replica, payload, lambda value: _send(pipe, "emit", value))
    except ForethoughtError:  # told to the other side, which raises it
        _send(pipe, "error", traceback.format_exc())
    else:
        _send(pipe, "done", result)
