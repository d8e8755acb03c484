"""How one program ended, judged only by what the trusted side saw."""

import os
import signal
from dataclasses import dataclass
from enum import StrEnum

from forethought.tools.sandbox.inside.frames import (
    BAD_SYNTAX,
    OUT_OF_MEMORY,
    End,
    Report,
    State,
)


class Kind(StrEnum):
    """The ways a program can end. None of them is infrastructure's doing."""

    OK = "ok"
    ERROR = "error"
    SYNTAX = "syntax_error"
    TIMEOUT = "timeout"
    CPU = "cpu_limit"
    MEMORY = "memory_limit"
    DISK = "disk_limit"
    OUTPUT = "output_limit"
    CRASH = "crash"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one program, and what it wrote.

    `detail` is its exit code or the name of the signal that ended it. `seconds` counts from its
    start; what it waited before and after is `queued`. `cpu` is 0 for a program that its session
    outlives, and all of the session's for the one that ends it. Of a stream longer than 64 KB,
    `out` and `err` hold the two ends. `state_lost`: the variables of its session are gone, either
    with this program or before it.

    >>> Outcome(kind=Kind.OK, out=b"2", out_bytes=1).kind
    <Kind.OK: 'ok'>
    """

    kind: Kind
    detail: str = ""
    out: bytes = b""
    err: bytes = b""
    out_bytes: int = 0
    err_bytes: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    queued: float = 0.0
    state_lost: bool = False

    @property
    def truncated(self) -> bool:
        """Whether it wrote more than is kept."""
        return self.out_bytes + self.err_bytes > len(self.out) + len(self.err)


SHORT_OF_MEMORY = "the host was short of memory"
"""The detail of a program that the kernel ended, although it held no more than it may."""

_ENDED_BY_US = {
    End.TIMEOUT: Kind.TIMEOUT,
    End.MEMORY: Kind.MEMORY,
    End.DISK: Kind.DISK,
    End.OUTPUT: Kind.OUTPUT,
    End.FORGED: Kind.CRASH,
    End.THREADS: Kind.CRASH,
}
_DETAILS = {End.THREADS: "the limit of processes and threads"}


def judge(report: Report, cpu_seconds: int | None) -> Outcome:
    """The outcome that a report amounts to. `cpu_seconds` is the limit that held, if one did."""
    kind, detail = _judge_status(report, cpu_seconds)
    return Outcome(
        kind=_ENDED_BY_US.get(report.end, kind),
        detail=_DETAILS.get(report.end, detail),
        out=report.out,
        err=report.err,
        out_bytes=report.out_bytes,
        err_bytes=report.err_bytes,
        seconds=report.seconds,
        cpu=report.cpu,
        state_lost=State.LOST in report.state,
    )


def killed_unasked(report: Report, cpu_seconds: int | None) -> bool:
    """Whether SIGKILL ended the program and nobody here sent it.

    Then the program did, or the kernel for want of memory.
    """
    ended = _judge_status(report, cpu_seconds)
    return report.end is End.EXITED and ended == (Kind.CRASH, signal.SIGKILL.name)


def _judge_status(report: Report, cpu_seconds: int | None) -> tuple[Kind, str]:
    if os.WIFSIGNALED(report.status):
        number = os.WTERMSIG(report.status)
        by_limit = cpu_seconds is not None and (
            number == signal.SIGXCPU or (number == signal.SIGKILL and report.cpu >= cpu_seconds)
        )
        return Kind.CPU if by_limit else Kind.CRASH, _signal_name(number)
    code = os.WEXITSTATUS(report.status)
    kinds = {0: Kind.OK, OUT_OF_MEMORY: Kind.MEMORY, BAD_SYNTAX: Kind.SYNTAX}
    return kinds.get(code, Kind.ERROR), str(code)


def _signal_name(number: int) -> str:
    known = {entry.value: entry.name for entry in signal.Signals}
    return known.get(number, f"signal {number}")
