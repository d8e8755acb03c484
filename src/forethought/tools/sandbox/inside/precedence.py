"""Who gives way to whom on the processor."""

import math
import os
from collections.abc import Iterable
from contextlib import suppress

_NICER = 5  # than the zygote
_NICEST = 19
_STEP = 1.25  # how many times a thread of one niceness outweighs one of the next


def give_way(processes: Iterable[int]) -> None:
    """Have these processes of one call, and what they start, give way to shorter programs.

    All their threads together weigh what one of them would alone: the more there are, the nicer
    each; where no niceness is enough, they run only while nobody else wants to.
    """
    threads: list[int] = []
    for process in processes:
        with suppress(OSError):  # it has just ended
            threads += map(int, os.listdir(f"/proc/{process}/task"))
    nice = niceness(len(threads), os.getpriority(os.PRIO_PROCESS, 0))
    for thread in threads:
        with suppress(OSError):  # it has just ended, or gives way as far as it can
            if nice is None:
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            else:
                os.setpriority(os.PRIO_PROCESS, thread, nice)


def niceness(threads: int, usual: int) -> int | None:
    """How nice each of so many threads is to be, where others are as nice as `usual`.

    None is beyond what niceness can say.

    >>> niceness(1, 0), niceness(8, 0), niceness(32, 0)
    (5, 14, None)
    """
    nice = usual + _NICER + round(math.log(max(1, threads), _STEP))
    return nice if nice <= _NICEST else None
