"""Which calls are held, and which of them only because it is others' turn."""

import os
import subprocess

import pytest

from forethought.tools.sandbox.inside.memory import Process
from forethought.tools.sandbox.inside.precedence import Family, Precedence
from tools.test_supervision import becomes, state

ONE, CROWD = Process(threads=1, busy=True), Process(threads=8, busy=True)
ASLEEP = Process(threads=1)


@pytest.fixture
def sleepers():
    """Processes that are no calls, but can be held like them."""
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(5)]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def are(processes, letter):
    return all(becomes(lambda process=process: state(process) == letter) for process in processes)


def test_a_call_waits_while_others_have_their_turn_and_a_crowd_never_does(sleepers):
    precedence = Precedence()
    kinds = [ONE, ONE, ONE, ONE, CROWD]
    families = {place: Family({sleepers[place]: kind}) for place, kind in enumerate(kinds)}
    waited = []
    for _ in range(10):
        precedence.give_way(families)
        held = set(precedence.held)
        assert are([sleepers[place] for place in held], "T")
        assert are([sleepers[place] for place in {*families} - held], "S")
        assert precedence.waiting == held - {4}
        waited.append(len(precedence.waiting))
    assert set(waited) == {2, 3, 4}


def test_a_call_that_rests_is_held_whatever_it_seems_to_do(sleepers):
    precedence = Precedence()
    kinds = [ONE, ASLEEP, Process(threads=2), ASLEEP]
    families = {
        place: Family({sleepers[place]: kind}, lasts=True, rests=True)
        for place, kind in enumerate(kinds)
    }
    precedence.give_way(families)
    assert (set(precedence.held), precedence.waiting) == ({*families}, set())
    assert are(sleepers[:4], "T")
    precedence.give_way({place: each._replace(rests=False) for place, each in families.items()})
    assert not precedence.held
    assert are(sleepers, "S")


def test_urgent_calls_are_not_held_and_lasting_ones_become_no_nicer(sleepers):
    precedence = Precedence()
    usual = os.getpriority(os.PRIO_PROCESS, sleepers[0])
    families = {
        place: Family({process: CROWD}, lasts=place < 4, urgent=True)
        for place, process in enumerate(sleepers)
    }
    precedence.give_way(families)
    assert not precedence.held
    nice = [os.getpriority(os.PRIO_PROCESS, process) for process in sleepers]
    assert nice[:4] == [usual] * 4
    assert nice[4] == min(19, usual + 11)
