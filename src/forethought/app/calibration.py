"""Who samples fastest here: one-thread workers, one a core, or this process with its threads.

A small model is bound by the interpreter and by waiting: workers do nearly twice the work. A
larger one fills the cores with one multiplication, and is read from memory once instead of by each.
Where it turns depends on the machine and on how many turns go on, so it is measured, for a second
or so, with the model at hand: first many turns, then the few that are left when others have ended.
"""

import os
import shutil
import time
from dataclasses import dataclass
from typing import Any

import torch

from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.models import LocalModel
from forethought.policy.local.replica import Port, Replica
from forethought.policy.local.turns import Request
from forethought.policy.protocol import SamplingSettings

ROWS = 32
"""Turns sampled at once in a measurement, over all workers."""
OPENING = 48
"""Tokens that they begin with."""
LEFT = 8
"""Of so many turns, one goes on to the end."""
STEPS = 12
"""Tokens that each turn is measured for, and the last ones again; half as many come before,
unmeasured."""
SHARED_MEMORY = "/dev/shm"
"""Where the parameters lie that workers share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How many tokens a second workers sampled, and this process; which was faster."""

    workers_rate: float
    threads_rate: float

    @property
    def workers_win(self) -> bool:
        """Whether workers are the faster ones."""
        return self.workers_rate >= self.threads_rate

    def __str__(self) -> str:
        return (
            f"one-thread workers sample {self.workers_rate:.0f} tokens a second, this process "
            f"with its threads {self.threads_rate:.0f}: "
            + ("workers it is" if self.workers_win else "this process it is")
        )


def fastest_crew(
    model: LocalModel,
    workers: int,
    dtype: torch.dtype,
    reference: torch.nn.Module | None,
    threads: int,
) -> tuple[ForkedCrew | LocalCrew, Calibration]:
    """The faster of the two crews that `model` can have here: `workers`, or one of `threads`.

    Workers are forked before this process has computed anything, since threads do not survive.
    """
    crew = ForkedCrew(model.network, workers, reference, dtype)
    try:
        together = crew.run_now(speed, [ROWS // workers] * workers)
        here = LocalCrew(model.network, reference, dtype, threads)
        found = Calibration(workers_rate=sum(together), threads_rate=here.run_now(speed, [ROWS])[0])
    except BaseException:
        crew.close()
        raise
    if found.workers_win:
        here.close()  # its threads would stay beside the workers
        return crew, found
    crew.close()
    return here, found


def can_have_workers(model: LocalModel) -> bool:
    """Whether this system forks, and has room for what workers share."""
    if not hasattr(os, "fork"):
        return False
    try:
        room = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return True  # no such folder here: shared memory is limited by memory alone
    return room > 8 * model.parameters + 2**26


def speed(replica: Replica, rows: int, port: Port) -> float:
    """The job: tokens a second that this replica samples for so many rows."""
    settings = SamplingSettings(max_tokens=3 * STEPS)
    batch = ContinuousBatch(replica.inference, 0)
    rows = max(1, rows)
    last = max(1, rows // LEFT)
    for seat in range(rows):
        # Made-up tokens: how fast they are chosen does not depend on what they say.
        request = Request(ids=(0,) * OPENING, stop=frozenset(), settings=settings, seed=seat)
        batch.admit(seat, request)
    for _ in range(STEPS // 2):
        batch.step()
    began = time.perf_counter()
    for _ in range(STEPS):
        batch.step()
    for seat in range(last, rows):
        batch.forget(seat)
    for _ in range(STEPS):
        batch.step()
    took = time.perf_counter() - began
    replica.inference.weights.release()
    return (rows + last) * STEPS / took


def as_document(calibration: Calibration, model: LocalModel, workers: int) -> dict[str, Any]:
    """What a run keeps of its calibration: it holds for this model on as many cores."""
    return {
        "workers": workers,
        "workers_rate": calibration.workers_rate,
        "threads_rate": calibration.threads_rate,
        **circumstances(model),
    }


def circumstances(model: LocalModel) -> dict[str, int]:
    """What a calibration depends on."""
    return {"parameters": model.parameters, "cores": cores()}


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
