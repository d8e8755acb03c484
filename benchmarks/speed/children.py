"""Running one subject as a process of its own, and watching how much memory it takes.

This process stays small on purpose: a child's peak as the kernel counts it starts with ours.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
WATCHING = 50
"""The watcher rests this many times as long as a look takes it: 2 % of one core at most."""
SHORTEST_REST = 0.2
"""Seconds."""
LIMIT = 3 * 3600.0
"""Seconds after which a subject is given up."""


class SubjectError(Exception):
    """A subject that did not answer; the message ends with what it said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a subject found, by case, and the memory that it took.

    `peak` is in bytes: the main process's own peak (ru_maxrss), or the greatest sum of
    proportional set sizes (PSS) over all of its processes that was seen, whichever is more.
    """

    cases: Mapping[str, Mapping[str, float]]
    facts: Mapping[str, Any]
    peak: float
    seconds: float


def ask(
    subject: str,
    task: Mapping[str, Any],
    *,
    python: Path | None = None,
    threads: int,
    settings: Mapping[str, str] | None = None,
    limit: float = LIMIT,
) -> Answer:
    """Run `benchmarks.speed.subjects.<subject>` on `task` and wait for its answer.

    Raises `SubjectError` when it ends without one, or has none after `limit` seconds. Whatever
    processes it started end with it.
    """
    with tempfile.TemporaryDirectory(prefix="forethought-speed-") as name:
        folder = Path(name)
        given, found, said = (folder / each for each in ("task.json", "answer.json", "log"))
        given.write_text(json.dumps({**task, "threads": threads, "folder": name}))
        module = f"benchmarks.speed.subjects.{subject}"
        command = [str(python or sys.executable), "-m", module, str(given), str(found)]
        began = time.perf_counter()
        with said.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(threads) | dict(settings or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                with Watch(process.pid) as watch:
                    code = process.wait(limit)
            except subprocess.TimeoutExpired:
                late = f"{subject} did not answer within {limit} s"
                raise SubjectError(f"{late}:\n{_end(said)}") from None
            finally:
                _end_session(process)
        if code or not found.is_file():
            raise SubjectError(f"{subject} ended with code {code}:\n{_end(said)}")
        answer = json.loads(found.read_text())
    return Answer(
        cases=answer["cases"],
        facts=answer.get("facts", {}),
        peak=max(answer["peak"], watch.peak),
        seconds=time.perf_counter() - began,
    )


def environment(threads: int) -> dict[str, str]:
    """The environment of every subject: so many threads, no hub, our sources to import."""
    limits = dict.fromkeys(THREADS, str(threads))
    return {
        **os.environ,
        **limits,
        "PYTHONPATH": str(ROOT / "src"),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }


class Watch:
    """Looks from time to time at how much memory a process and its children hold together."""

    def __init__(self, process: int) -> None:
        self.peak = 0.0
        self._process = process
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        rest = 0.0
        while not self._ended.wait(rest):
            began = time.perf_counter()
            held = sum(map(proportional, family(self._process)))
            self.peak = max(self.peak, held)
            rest = max(SHORTEST_REST, WATCHING * (time.perf_counter() - began))


def family(process: int) -> Iterator[int]:
    """A process, its children, and theirs; nothing where the system does not say."""
    yield process
    with suppress(OSError):  # it may end meanwhile
        tasks = sorted(Path(f"/proc/{process}/task").iterdir())
        children = [_read(task / "children") for task in tasks]
        for child in " ".join(children).split():
            yield from family(int(child))


def proportional(process: int) -> int:
    """The proportional set size of one process in bytes; 0 where the system does not say."""
    for line in _read(Path(f"/proc/{process}/smaps_rollup")).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started; nothing where they have ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # it has ended meanwhile, or this is another system
        return ""


def _end(log: Path, length: int = 4000) -> str:
    return log.read_text(errors="replace")[-length:]
