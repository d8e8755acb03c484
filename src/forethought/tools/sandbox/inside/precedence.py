"""Who gives way to whom on the processor."""

import math
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress

from .memory import Process

CROWD = 2
"""Threads of a call that may run at once beside other calls."""

_NICER = 5  # than the zygote
_NICEST = 19
_STEP = 1.25  # how many times a thread of one niceness outweighs one of the next


class Precedence:
    """Which of a server's long calls run now, and which wait so that shorter programs run.

    All threads of a crowd together weigh what `CROWD` of them would, as far as niceness goes: the
    more there are, the nicer each. Calls that compute take turns, so that no more than `CROWD`
    threads of several do so at once, and a crowd is held for all but one of several turns of its
    own. They are not left to run while nobody else wants to: a process must run once more to be
    killed.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._turns_had: dict[int, int] = {}
        self._held: set[int] = set()

    @property
    def held(self) -> Collection[int]:
        """The places of calls that are held at the moment."""
        return self._held

    def forget(self, place: int) -> None:
        """A call is over."""
        self._turns_had.pop(place, None)
        self._held.discard(place)

    def give_way(
        self, families: Mapping[int, Mapping[int, Process]], urgent: Collection[int]
    ) -> None:
        """Have the processes of these calls, by place, give way. Urgent ones are not held."""
        self._turn += 1
        counts = {
            place: sum(each.threads for each in of.values()) for place, of in families.items()
        }
        busy = {
            place: counts[place]
            for place, family in families.items()
            if counts[place] > CROWD or any(each.busy for each in family.values())
        }
        on = in_turn(busy, self._turn)
        for place, family in families.items():
            had = self._turns_had[place] = self._turns_had.get(place, -1) + (place in on)
            waits = place in busy and not (place in on and not is_held(busy[place], had))
            _make_nicer(family, counts[place])
            self._hold(place, family, hold=waits and place not in urgent)

    def _hold(self, place: int, processes: Collection[int], *, hold: bool) -> None:
        if hold or place in self._held:
            for process in processes:
                with suppress(OSError):  # it has just ended
                    os.kill(process, signal.SIGSTOP if hold else signal.SIGCONT)
        (self._held.add if hold else self._held.discard)(place)


def _make_nicer(processes: Collection[int], count: int) -> None:
    threads: list[int] = []
    for process in processes:
        with suppress(OSError):  # it has just ended
            threads += map(int, os.listdir(f"/proc/{process}/task"))
    nice = niceness(count, os.getpriority(os.PRIO_PROCESS, 0))
    for thread in threads:
        with suppress(OSError):  # it has just ended, or is nicer already
            os.setpriority(os.PRIO_PROCESS, thread, nice)


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


def in_turn(threads: Mapping[int, int], turn: int) -> set[int]:
    """Whose turn it is of calls with so many threads: as many as have `CROWD` together, or one.

    >>> [sorted(in_turn({1: 1, 2: 1, 3: 1}, turn)) for turn in range(4)]
    [[1, 2], [2, 3], [1, 3], [1, 2]]
    >>> [sorted(in_turn({1: 32, 2: 1}, turn)) for turn in range(3)]
    [[1], [2], [1]]
    """
    places = sorted(threads)
    found: set[int] = set()
    running = 0
    for step in range(len(places)):
        place = places[(turn + step) % len(places)]
        running += threads[place]
        if found and running > CROWD:
            break
        found.add(place)
    return found
