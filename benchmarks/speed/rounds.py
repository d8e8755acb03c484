"""Measuring contestants in turns, each time in a new process, and keeping what they answered."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.children import Answer, SubjectError, ask
from benchmarks.speed.figures import Trial, in_turns

OURS = "forethought"
LOOK = 1.0
"""Seconds for which this looks at what else the machine does."""
NOTICED = 0.1
"""Cores that are worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person asked for."""

    cache: Path
    results: Path
    problems: Path | None
    rounds: int
    threads: int
    quick: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Someone to measure: a subject, its task, and the interpreter that has what it needs.

    Several may have one name and different cases, each in a process of its own.
    """

    name: str
    subject: str
    task: Mapping[str, Any]
    python: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was measured, and why some others could not be."""

    trials: list[Trial] = field(default_factory=list[Trial])
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, other: "Outcome") -> None:
        """Take in what another outcome holds."""
        self.trials += other.trials
        self.failures |= other.failures


def take_turns(contestants: Sequence[Contestant], options: Options) -> Outcome:
    """Measure everyone in every round, in alternating order.

    Another tool that fails is left out from then on and its reason kept; ours must not fail.
    """
    outcome = Outcome()
    for number, one in in_turns(contestants, options.rounds):
        name = one.name
        if name in outcome.failures:
            continue
        disturbed = busy(LOOK)
        began = time.perf_counter()
        try:
            answer = ask(
                one.subject,
                {**one.task, "seed": number},
                python=one.python,
                threads=options.threads,
                settings=one.settings,
            )
        except SubjectError as error:
            if one.python is None:
                raise
            outcome.failures[name] = str(error)
            print(f"  {name} failed:\n{error}", flush=True)
            continue
        disturbed = max(disturbed, busy(LOOK))
        outcome.trials += trials(name, number, answer, disturbed)
        seconds = time.perf_counter() - began
        others = f", others kept {disturbed:.1f} cores busy" if disturbed > NOTICED else ""
        what = ", ".join([name, *filter(None, [one.task.get("case")])])
        print(f"  round {number + 1}: {what} took {seconds:.0f} s{others}", flush=True)
    return outcome


def trials(name: str, number: int, answer: Answer, disturbed: float) -> list[Trial]:
    """An answer as trials, one a case.

    Each has the peak memory of the whole process, and how many cores were busy with other things
    before it began or after it had ended, whichever is more.
    """
    return [
        Trial(
            subject=name,
            case=case,
            round=number,
            figures={**figures, "peak_bytes": answer.peak, "disturbed_cores": disturbed},
            facts=answer.facts,
        )
        for case, figures in answer.cases.items()
    ]


def busy(seconds: float) -> float:
    """How many cores are busy while this one waits; 0 where the system does not say."""
    before = _processor_seconds()
    time.sleep(seconds)
    return (_processor_seconds() - before) / seconds


def _processor_seconds() -> float:
    """Processor time of everything since the system started, waiting left out."""
    try:
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal, *_ = map(int, line.split()[1:])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
