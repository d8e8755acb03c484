"""Who gives way to whom on the processor."""

import math
import os
import signal
from collections.abc import Collection
from contextlib import suppress

CROWD = 2
"""Threads of a call that may run at once beside other calls."""

_NICER = 5  # than the zygote
_NICEST = 19
_STEP = 1.25  # how many times a thread of one niceness outweighs one of the next


def give_way(processes: Collection[int], turn: int, *, held: bool) -> bool:
    """Have these processes of one call give way to shorter programs; whether they are held now.

    All threads of a crowd together weigh what `CROWD` of them would, as far as niceness goes: the
    more there are, the nicer each. They are held but for one turn of several, so that over time no
    more than that run. They are not left to run while nobody else wants to: a process must run once
    more to be killed.
    """
    threads: list[int] = []
    for process in processes:
        with suppress(OSError):  # it has just ended
            threads += map(int, os.listdir(f"/proc/{process}/task"))
    nice = niceness(len(threads), os.getpriority(os.PRIO_PROCESS, 0))
    for thread in threads:
        with suppress(OSError):  # it has just ended, or is nicer already
            os.setpriority(os.PRIO_PROCESS, thread, nice)
    hold = is_held(len(threads), turn)
    if hold or held:
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGSTOP if hold else signal.SIGCONT)
    return hold


def niceness(threads: int, usual: int) -> int:
    """How nice each of so many threads is to be, where others are as nice as `usual`.

    >>> niceness(2, 0), niceness(8, 0), niceness(32, 0)
    (5, 11, 17)
    """
    crowds = max(1, threads / CROWD)
    return min(_NICEST, usual + _NICER + round(math.log(crowds, _STEP)))


def is_held(threads: int, turn: int) -> bool:
    """Whether a call of so many threads is held this turn.

    >>> [is_held(6, turn) for turn in range(6)]
    [False, True, True, False, True, True]
    """
    return turn % max(1, math.ceil(threads / CROWD)) != 0
