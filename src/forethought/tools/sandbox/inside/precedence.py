"""Who gives way to whom on the processor."""

import math
import os
import signal
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from .memory import Process

CROWD = 2
"""Threads of a call that may run at once beside other calls."""

_NICER = 5  # than the zygote
_NICEST = 19
_STEP = 1.25  # how many times a thread of one niceness outweighs one of the next


class Family(NamedTuple):
    """The processes of a call that gives way.

    One that `lasts` has other programs after this one, and stays as nice as it was, since nobody
    can be made less nice again. While it `rests`, between two of them, it has no turns. One that is
    `urgent` is not held.
    """

    processes: Mapping[int, Process]
    lasts: bool = False
    rests: bool = False
    urgent: bool = False

    @property
    def threads(self) -> int:
        """How many threads its processes have together."""
        return sum(each.threads for each in self.processes.values())

    @property
    def busy(self) -> bool:
        """Whether it computes, or would if it were let."""
        return any(each.busy for each in self.processes.values())


class Precedence:
    """Which of a server's long calls run now, and which wait so that shorter programs run.

    All threads of a crowd together weigh what `CROWD` of them would, as far as niceness goes: the
    more there are, the nicer each. Calls that compute take turns, so that no more than `CROWD`
    threads of several do so at once, and a crowd is held for all but one of several turns of its
    own. They are not left to run while nobody else wants to: a process must run once more to be
    killed. What rests is held: it may wake up for a moment whenever nobody looks.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._turns_had: dict[int, int] = {}
        self._held: set[int] = set()
        self._waiting: set[int] = set()

    @property
    def held(self) -> Collection[int]:
        """The places of calls that are held at the moment."""
        return self._held

    @property
    def waiting(self) -> Collection[int]:
        """Those that are held only because it is others' turn, and not as crowds."""
        return self._waiting

    def forget(self, place: int) -> None:
        """A call is over."""
        self._turns_had.pop(place, None)
        self._held.discard(place)

    def give_way(self, families: Mapping[int, Family]) -> None:
        """Have these calls, by place, give way."""
        self._turn += 1
        busy = {
            place: family.threads
            for place, family in families.items()
            if not family.rests and (family.threads > CROWD or family.busy)
        }
        on = in_turn(busy, self._turn)
        off = {place for place in busy if place not in on and not families[place].urgent}
        self._waiting = {place for place in off if busy[place] <= CROWD}
        for place, family in families.items():
            had = self._turns_had[place] = self._turns_had.get(place, -1) + (place in on)
            too_many = place in on and is_held(busy[place], had) and not family.urgent
            if not family.lasts:
                _make_nicer(family.processes, family.threads)
            self._hold(place, family.processes, hold=place in off or too_many or family.rests)

    def _hold(self, place: int, processes: Collection[int], *, hold: bool) -> None:
        if hold or place in self._held:
            for process in processes:
                with suppress(OSError):  # it has just ended
                    os.kill(process, signal.SIGSTOP if hold else signal.SIGCONT)
        (self._held.add if hold else self._held.discard)(place)


def is_crowd(processes: Collection[int], beside: int) -> bool:
    """Whether these are too many beside so many other calls, however short a time they have run."""
    return beside > 0 and len(processes) > CROWD


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
