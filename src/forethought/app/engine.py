"""The local engine put together: a model, who computes with it, who samples from it.

Chooses between worker processes and this process, and refuses what the memory cannot hold.
"""

import copy
import ctypes
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import torch

from forethought.agents.tool_agent import AgentSettings, ToolAgent
from forethought.app.calibration import (
    Calibration,
    better_crew,
    cores,
    most_workers,
    refuse_without_room,
)
from forethought.app.memory import memory_needed, pass_size, refuse_too_large
from forethought.app.sampling import reply_tokens
from forethought.core.errors import RecipeError
from forethought.learning.credit.settings import CriticSettings
from forethought.learning.learner import LocalLearner
from forethought.learning.precision import chosen_dtype
from forethought.learning.settings import ComputeSettings, OptimizerSettings
from forethought.policy.local.crew import Crew, ForkedCrew, LocalCrew
from forethought.policy.local.models import LocalModel
from forethought.policy.local.sampler import LocalSampler
from forethought.policy.protocol import SamplingSettings
from forethought.policy.token_policy import TokenPolicy
from forethought.tasks.protocol import Grader
from forethought.tools.host_memory import free_memory
from forethought.tools.protocol import Tools

_TRIM_THRESHOLD, _MAPPED_FROM = -1, -3  # mallopt(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A model that speaks and learns on this machine."""

    model: LocalModel
    crew: Crew
    sampler: LocalSampler
    compute: ComputeSettings
    calibration: Calibration | None = None

    @property
    def workers(self) -> int:
        """Worker processes; 0 where this process computes."""
        return self.crew.size if isinstance(self.crew, ForkedCrew) else 0

    def agent(
        self, tools: Tools, grader: Grader, limits: AgentSettings, sampling: SamplingSettings
    ) -> ToolAgent:
        """A solver that speaks with the model's present weights."""
        policy = TokenPolicy(
            sampler=self.sampler,
            format=self.model.format,
            settings=sampling,
            reply_tokens=reply_tokens(sampling, self.model),
        )
        return ToolAgent(policy=policy, tools=tools, grader=grader, limits=limits)

    def learner(
        self,
        optimizer: OptimizerSettings,
        total_steps: int,
        temperature: float = 1.0,
        budget: int | None = None,
        section: str = "optimizer",
        critic: CriticSettings | None = None,
    ) -> LocalLearner:
        """A learner of the model, with a fresh optimiser from that `section` of the recipe.

        `budget` is the completion limit; `critic` says how a value head learns, where there is one.
        """
        return LocalLearner(
            model=self.model,
            crew=self.crew,
            sampler=self.sampler,
            optimizer=optimizer,
            compute=self.compute,
            total_steps=total_steps,
            temperature=temperature,
            budget=budget,
            section=section,
            critic=critic,
        )


@contextmanager
def start_engine(
    model: LocalModel,
    compute: ComputeSettings,
    *,
    with_reference: bool = False,
    optimizers: Sequence[OptimizerSettings] = (),
    trains: bool = True,
) -> Generator[Engine]:
    """The engine for `model`; its workers end with the block.

    `with_reference` keeps a frozen copy of the model as it is now, for losses with a KL penalty.
    `optimizers` are those that train it sooner or later: memory is asked for the largest, unless
    it does not train.
    """
    device = chosen_device(compute)
    needed = partial(
        memory_needed,
        model,
        on_gpu=device.type == "cuda",
        with_reference=with_reference,
        optimizers=optimizers,
        passing=pass_size(model, compute),
        trains=trains,
    )
    workers = fitting_workers(model, compute, needed, available_memory(device))
    model.network.to(device).eval()
    reference = copy.deepcopy(model.network).requires_grad_(False) if with_reference else None
    dtype = chosen_dtype(compute.precision, device) or torch.float32
    compute_in_one_thread()
    keep_freed_memory()
    crew, calibration = _who_computes(model, compute, workers, dtype, reference)
    try:
        yield Engine(
            model=model,
            crew=crew,
            sampler=LocalSampler(crew=crew, deterministic=compute.deterministic),
            compute=compute,
            calibration=calibration,
        )
    finally:
        crew.close()


def _who_computes(
    model: LocalModel,
    compute: ComputeSettings,
    workers: int,
    dtype: torch.dtype,
    reference: torch.nn.Module | None,
) -> tuple[Crew, Calibration | None]:
    """The crew, and what it was chosen by where that was asked for."""
    threads = compute.threads or cores()
    if not workers:
        return LocalCrew(model.network, reference, dtype, threads), None
    if compute.workers == "auto":
        crew, calibration = better_crew(model, workers, dtype, reference, threads)
    else:
        crew, calibration = ForkedCrew(model.network, workers, reference, dtype), None
    if isinstance(crew, ForkedCrew) and compute.threads:
        torch.set_num_threads(compute.threads)
    return crew, calibration


def compute_in_one_thread() -> None:
    """Leave the cores to workers, or to the one thread of this process that computes with several.

    Call it before anything is computed here: threads that exist wait for a core, or spin.
    """
    torch.set_num_threads(1)


def keep_freed_memory() -> None:
    """Have this process keep what it frees for what it takes next.

    glibc returns arrays to the system when they go, which clears the memory of the next ones page
    by page: several arrays a sampled token. It can be had to keep those of up to 32 MiB.
    """
    with suppress(OSError, AttributeError):  # other libraries have no such setting
        library = ctypes.CDLL(None)
        library.mallopt(_MAPPED_FROM, 2**25)
        library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def worker_count(model: LocalModel, compute: ComputeSettings) -> int:
    """How many worker processes to use or, with `auto`, to try; 0 computes in this process."""
    if chosen_device(compute).type == "cuda":
        if isinstance(compute.workers, int) and compute.workers > 0:
            raise RecipeError(
                f"compute.workers = {compute.workers} with a GPU: workers are for CPUs; set 0"
            )
        return 0
    if compute.workers != "auto":
        refuse_without_room(model, compute.workers)
        return compute.workers
    return most_workers(model)


def fitting_workers(
    model: LocalModel, compute: ComputeSettings, needed: Callable[[int], int], available: int
) -> int:
    """How many worker processes to use or try, of which each number needs so many bytes.

    Raises `RecipeError` where `available` bytes are not enough for the model.
    """
    workers = worker_count(model, compute)
    if compute.workers == "auto":
        workers = affordable(workers, needed, available)
    refuse_too_large(model, workers, needed(workers), available)
    return workers


def affordable(workers: int, needed: Callable[[int], int], available: int) -> int:
    """The most workers, up to so many, for which `available` bytes are enough; else 0.

    >>> affordable(8, lambda workers: 10 + 5 * workers, 32)
    4
    """
    enough = (each for each in range(workers, 0, -1) if needed(each) <= available)
    return next(enough, 0)


def available_memory(device: torch.device) -> int:
    """Bytes that this process may still take on `device`, a container's limit included."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_memory()


def chosen_device(compute: ComputeSettings) -> torch.device:
    """Where to compute. Raises `RecipeError` for a GPU that is not there."""
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise RecipeError('compute.device = "cuda": torch finds no GPU here; use "auto" or "cpu"')
    if compute.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(compute.device)
