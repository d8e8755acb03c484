"""Results on disk, one JSON file a part with its table beside it, and from there to the page."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.speed.figures import Trial
from benchmarks.speed.parts.part import Part
from benchmarks.speed.rounds import Options, Outcome
from benchmarks.speed.table import cells, plain, put, table

CODE = ("src", "benchmarks")
"""Folders whose changes make it other code."""
HEAD = ("part", "when", "code", "took", "rounds", "threads", "problems", "others", "where")


def keep(part: Part, outcome: Outcome, seconds: float, options: Options, code: str) -> str:
    """Write a part's result, `code` being what it is of, and its table; returns the table."""
    body = {
        "part": part.name,
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "code": code,
        "seconds": round(seconds),
        "quick": options.quick,
        "rounds": options.rounds,
        "threads": options.threads,
        "problems": "made" if options.problems is None else options.problems.name,
        "machine": described(),
        "failures": outcome.failures,
        "trials": [asdict(trial) for trial in outcome.trials],
    }
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / f"{part.name}.json"
    file.write_text(json.dumps(body, indent=1), encoding="utf-8")
    text = table(part.lines(outcome.trials))
    file.with_suffix(".md").write_text(f"{text}\n", encoding="utf-8")
    return text


def revision(root: Path) -> str:
    """The commit whose code is in `root`, and whether it has changes; empty where git has none."""
    found, changes = _git(root, "rev-parse", "--short", "HEAD"), _git(root, "status", "-s", *CODE)
    return f"{found} (changed)" if found and changes else found


def _git(root: Path, *words: str) -> str:
    """What git says of the working tree in `root`; nothing where that has no repository."""
    if not (root / ".git").exists():  # git would look for one above it
        return ""
    with suppress(FileNotFoundError):  # git is not installed
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()
    return ""


def described() -> dict[str, Any]:
    """This machine, and the versions that ours runs with."""
    libraries = ("torch", "transformers", "tokenizers", "numpy")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in libraries},
    }


def render(parts: Mapping[str, Part], results: Path, page: Path) -> list[str]:
    """Put the tables of all results that there are into the page; returns the parts' names.

    Those of other parts stay as they are, and so does what the page says about them.
    """
    found: list[str] = []
    about = {row[0].split()[0]: row for row in cells(page, "about") if len(row) == len(HEAD)}
    for name, part in parts.items():
        file = results / f"{name}.json"
        if not file.is_file():
            continue
        body = json.loads(file.read_text(encoding="utf-8"))
        trials = [Trial(**each) for each in body["trials"]]
        put(page, name, table(part.lines(trials)))
        about[name] = _about(body, trials)
        found.append(name)
    if found:
        put(page, "about", plain(HEAD, [about[name] for name in parts if name in about]))
    return found


def _about(body: Mapping[str, Any], trials: Sequence[Trial]) -> list[str]:
    versions = {**body["machine"], **_versions(trials)}
    disturbed = max((each.figures["disturbed_cores"] for each in trials), default=0.0)
    quick = " (quick)" if body["quick"] else ""
    return [
        body["part"] + quick,
        body["when"],
        body.get("code", ""),  # results of before say nothing of it
        f"{body['seconds'] / 60:.0f} min",
        str(body["rounds"]),
        str(body["threads"]),
        body["problems"],
        f"{disturbed:.1f} cores",
        ", ".join(f"{name} {value}" for name, value in versions.items()),
    ]


def _versions(trials: Sequence[Trial]) -> dict[str, str]:
    """What other tools said of their versions."""
    return {
        f"{trial.subject}: {name}": value
        for trial in trials
        for name, value in trial.facts.items()
        if isinstance(value, str) and trial.subject != "machine"
    }


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
