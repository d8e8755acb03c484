"""Who should sample here: one-thread workers, one a core, or this process with its threads.

A small model is bound by the interpreter and by waiting: workers do nearly twice the work. A
larger one fills the cores with one multiplication, and is read from memory once instead of by each.
Where it turns depends on the machine and on how many turns go on, so it is measured, for a second
or so, with the model at hand: first many turns, then the few that are left when others have ended.
"""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from forethought.core.errors import RecipeError
from forethought.policy.local.continuous import ContinuousBatch
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.models import LocalModel
from forethought.policy.local.replica import Port, Replica, trained_parameters
from forethought.policy.local.turns import Request
from forethought.policy.protocol import SamplingSettings

ROWS = 32
"""Turns sampled at once in a measurement, over all workers."""
OPENING = 48
"""Tokens that they begin with, where the context has room for them."""
LEFT = 8
"""Of so many turns, one goes on to the end."""
STEPS = 12
"""Tokens that each turn is measured for, and the last ones again; half as many come before,
unmeasured. Fewer in a small context."""
SMALL = 2**25
"""Parameters up to which the memory of a worker does not count."""
WORTH_SMALL = 0.8
"""How many times as fast as this process workers of a small model must be. Alone, as here, both may
be equally fast where workers make the attempts of a run a third faster: agents and tools take turns
with this process's threads, which wait for each other."""
TURNS_SMALL = 3
"""How often both are measured at most, in turns, until workers of a small model win; the best of
each counts. A worker that was disturbed for a moment is not taken for a slow one."""
WORTH_LARGE = 1.1
"""The same for others, each of which takes memory worth speaking of."""
SHARED_MEMORY = "/dev/shm"
"""Where the parameters lie that workers share."""
SLACK = 2**26
"""Bytes of shared memory left to others, and to what a model holds beside its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How many tokens a second workers sampled, and this process; who is chosen.

    That depends on the model's size too: how many `parameters` it has.
    """

    workers_rate: float
    threads_rate: float
    parameters: int

    @property
    def workers_win(self) -> bool:
        """Whether workers are as fast as makes them worth their memory."""
        worth = WORTH_SMALL if self.parameters <= SMALL else WORTH_LARGE
        return self.workers_rate >= worth * self.threads_rate

    def at_best(self, workers_rate: float, threads_rate: float) -> "Calibration":
        """Measured once more: the better rate of each.

        >>> Calibration(workers_rate=5.0, threads_rate=8.0, parameters=1).at_best(9.0, 7.0)
        Calibration(workers_rate=9.0, threads_rate=8.0, parameters=1)
        """
        return replace(
            self,
            workers_rate=max(self.workers_rate, workers_rate),
            threads_rate=max(self.threads_rate, threads_rate),
        )

    def __str__(self) -> str:
        return (
            f"one-thread workers sample {self.workers_rate:.0f} tokens a second, this process "
            f"with its threads {self.threads_rate:.0f}: {self._choice}"
        )

    @property
    def _choice(self) -> str:
        faster = self.workers_rate >= self.threads_rate
        if self.workers_win:
            return "workers it is" + ("" if faster else ", which agents and tools slow less")
        return "this process it is" + (", which takes less memory" if faster else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one replica is measured with: turns, and how many of them go on to the end."""

    turns: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How many tokens one replica sampled, and in how many seconds."""

    tokens: int
    seconds: float


def trials(replicas: int) -> list[Trial]:
    """All turns dealt to so many replicas. One without a turn is left out.

    >>> trials(1)
    [Trial(turns=32, last=4)]
    >>> trials(3)
    [Trial(turns=11, last=2), Trial(turns=11, last=1), Trial(turns=10, last=1)]
    """
    dealt = zip(_dealt(ROWS, replicas), _dealt(ROWS // LEFT, replicas), strict=True)
    return [Trial(turns=turns, last=last) for turns, last in dealt if turns]


def _dealt(count: int, hands: int) -> list[int]:
    return [count // hands + (hand < count % hands) for hand in range(hands)]


def lengths(context: int) -> tuple[int, int]:
    """Tokens of an opening, and steps of each part, that leave a turn in a context of that size.

    >>> lengths(512), lengths(64), lengths(12)
    ((48, 12), (28, 12), (3, 3))
    """
    steps = min(STEPS, max(1, context // 4))
    return max(1, min(OPENING, context - 3 * steps)), steps


def rate(together: Sequence[Sampling]) -> float:
    """Tokens a second of replicas that sampled side by side: the last to end counts.

    >>> rate([Sampling(tokens=60, seconds=1.0), Sampling(tokens=40, seconds=2.0)])
    50.0
    """
    return sum(each.tokens for each in together) / max(each.seconds for each in together)


def better_crew(
    model: LocalModel,
    workers: int,
    dtype: torch.dtype,
    reference: torch.nn.Module | None,
    threads: int,
) -> tuple[ForkedCrew | LocalCrew, Calibration]:
    """The better of the two crews that `model` can have here: `workers`, or one of `threads`.

    Workers are forked before this process has computed anything, since threads do not survive.
    """
    with ExitStack() as begun:
        forked = ForkedCrew(model.network, workers, reference, dtype)
        begun.callback(forked.close)
        here = LocalCrew(model.network, reference, dtype, threads)
        begun.callback(here.close)
        found = Calibration(workers_rate=0.0, threads_rate=0.0, parameters=model.parameters)
        for _ in range(TURNS_SMALL if model.parameters <= SMALL else 1):
            together = rate(forked.run_now(speed, trials(workers)))
            found = found.at_best(together, rate(here.run_now(speed, trials(1))))
            if found.workers_win:
                break
        begun.pop_all()
    winner, loser = (forked, here) if found.workers_win else (here, forked)
    loser.close()  # its threads would stay beside the workers, or the other way round
    return winner, found


def most_workers(model: LocalModel) -> int:
    """How many workers can be had here: one a core, if this system forks and has room for them."""
    if cores() == 1 or not hasattr(os, "fork"):
        return 0
    return min(cores(), _workers_with_room(model))


def refuse_without_room(model: LocalModel, workers: int) -> None:
    """Raise `RecipeError` for more workers than shared memory has room for."""
    if workers > (most := _workers_with_room(model)):
        raise RecipeError(
            f"compute.workers = {workers}: {SHARED_MEMORY} has room for {most} of this model; set "
            f"compute.workers = {most}, or give it more room (a container: --shm-size)"
        )


def _workers_with_room(model: LocalModel) -> int:
    try:
        room = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        return sys.maxsize  # no such folder here: shared memory is limited by memory alone
    trained = sum(each.numel() for each in trained_parameters(model.network))
    return room_for_workers(model.parameters, trained, room)


def room_for_workers(parameters: int, trained: int, room: int) -> int:
    """How many workers so many bytes of shared memory hold: the weights once, a gradient for each.

    >>> room_for_workers(135_000_000, 135_000_000, 2 * 2**30)
    2
    """
    return max(0, (room - SLACK - 4 * parameters) // (4 * max(1, trained)))


def speed(replica: Replica, trial: Trial, port: Port) -> Sampling:
    """The job: sample made-up turns. It can be put away at every step."""
    settings = SamplingSettings(max_tokens=3 * STEPS)
    opening, steps = lengths(replica.inference.context)
    replica.inference.weights.refresh()
    batch = ContinuousBatch(replica.inference, 0)
    for seat in range(trial.turns):
        # Made-up tokens: how fast they are chosen does not depend on what they say.
        request = Request(ids=(0,) * opening, stop=frozenset(), settings=settings, seed=seat)
        batch.admit(seat, request)
    _sample(batch, max(1, steps // 2), port)
    began = time.perf_counter()
    tokens = _sample(batch, steps, port)
    for seat in range(trial.last, trial.turns):
        batch.forget(seat)
    tokens += _sample(batch, steps, port)
    seconds = time.perf_counter() - began
    replica.inference.weights.release()
    return Sampling(tokens=tokens, seconds=seconds)


def _sample(batch: ContinuousBatch, steps: int, port: Port) -> int:
    """Tokens that so many steps come to."""
    tokens = 0
    for _ in range(steps if batch.rows else 0):
        port.heard()
        tokens += batch.rows
        batch.step()
    return tokens


def as_document(calibration: Calibration, model: LocalModel, workers: int) -> dict[str, Any]:
    """What a run keeps of its calibration: it holds for this model on as many cores."""
    return {
        "workers": workers,
        "setting": setting(workers),
        "workers_rate": calibration.workers_rate,
        "threads_rate": calibration.threads_rate,
        **circumstances(model),
    }


def setting(workers: int) -> str:
    """What has as many workers again, unmeasured, on a command's line.

    >>> setting(2)
    '--compute.workers=2'
    """
    return f"--compute.workers={workers}"


def circumstances(model: LocalModel) -> dict[str, int]:
    """What a calibration depends on."""
    return {"parameters": model.parameters, "cores": cores()}


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
