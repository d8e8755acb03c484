"""How a subject is asked and how it answers: files in, files out, on so many cores."""

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Task = Mapping[str, Any]
Cases = Mapping[str, Mapping[str, float]]
Measure = Callable[[Task], tuple[Cases, Mapping[str, Any]]]
"""A task becomes figures by case, and facts about them."""


def answer(measure: Measure) -> None:
    """Do the task in the file that is named first; leave the answer in the second."""
    given, found = map(Path, sys.argv[1:3])
    task = json.loads(given.read_text())
    keep_to_cores(task["threads"])
    cases, facts = measure(task)
    body = {"cases": cases, "facts": facts, "peak": peak()}
    found.write_text(json.dumps(body))


def keep_to_cores(count: int) -> None:
    """Let this process and its children have `count` cores, as far as the system has them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores(count))


def cores(count: int) -> list[int]:
    """The first `count` cores that this process may use, where the system can say."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return allowed[:count]


def peak() -> int:
    """The most memory that this process has held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
