"""What the machine could do at best: matrix products and memory traffic, through torch."""

import time
from collections.abc import Callable

import torch
from benchmarks.speed.subjects.answer import Cases, Task, answer

WIDTH = 2048
"""Rows and columns of the matrix that is multiplied with."""
ROWS = (32, 128, 1024)
BYTES = 2**30
"""Size of what is copied: beyond any cache."""
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def fastest(work: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest of the repetitions that fit in `seconds`, three at least."""
    work()
    best, began, count = float("inf"), time.perf_counter(), 0
    while count < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        count += 1
    return best


def product(rows: int, dtype: torch.dtype, seconds: float) -> float:
    """GFLOP/s of [rows, WIDTH] x [WIDTH, WIDTH]."""
    left, right = torch.randn(rows, WIDTH).to(dtype), torch.randn(WIDTH, WIDTH).to(dtype)
    taken = fastest(lambda: torch.nn.functional.linear(left, right), seconds)
    return 2 * rows * WIDTH**2 / taken / 1e9


def copying(seconds: float) -> float:
    """GB/s read and written in copying a tensor."""
    source, target = torch.ones(BYTES // 4), torch.empty(BYTES // 4)
    return 2 * BYTES / fastest(lambda: target.copy_(source), seconds) / 1e9


@torch.inference_mode()
def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """Every product and the memory with 1 thread and with all of the task's."""
    seconds: float = task["seconds"]
    cases: dict[str, dict[str, float]] = {}
    for threads in sorted({1, task["threads"]}):
        torch.set_num_threads(threads)
        for name, dtype in TYPES.items():
            speeds = {rows: product(rows, dtype, seconds) for rows in ROWS}
            for rows, speed in speeds.items():
                cases[f"{name} M={rows} threads={threads}"] = {"gflops": speed}
            cases[f"{name} best threads={threads}"] = {"gflops": max(speeds.values())}
        cases[f"memory threads={threads}"] = {"gb_per_s": copying(seconds)}
    return cases, {
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
    }


if __name__ == "__main__":
    answer(measure)
