"""What the supervisor orders of the zygote, and when: the test plays the zygote."""

import os
import threading

from forethought.tools.sandbox.inside.frames import Ask, End, Order, Request
from tools.test_played_zygote import LIMITS, begun, reports, supervised
from tools.test_supervision import becomes

FIRST, SECOND = Request(Ask.RUN, 1, code=b"1"), Request(Ask.RUN, 2, code=b"2")


def ordered(zygote, order):
    """The places that an order was given for, the first one first."""
    return [number for given, number in list(zygote.orders) if given is order]


def both_begun(tool, zygote):
    """The children of both programs, after the server's announcement."""
    assert [each.end for each in reports(tool, 1)] == [End.READY]
    first = begun(zygote)
    first.go.recv(64)
    tool.send(SECOND.pack())
    return first, begun(zygote)


def test_only_one_look_at_the_processes_is_under_way_and_a_program_is_demoted_once():
    with supervised(FIRST, waiting=[]) as (tool, zygote):
        first, second = both_begun(tool, zygote)
        assert becomes(lambda: len(ordered(zygote, Order.DEMOTE)) == 2)
        zygote.waiting = None
        assert becomes(lambda: zygote.unanswered == 1)
        looks = len(ordered(zygote, Order.INSPECT))
        # Nobody says that the last look is over: no other is ordered, and what comes is at once.
        assert not becomes(lambda: len(ordered(zygote, Order.INSPECT)) > looks, seconds=0.5)
        tool.send(Request(Ask.CANCEL, 1).pack())
        assert becomes(lambda: ordered(zygote, Order.KILL) == [first.number])
        assert len(ordered(zygote, Order.INSPECT)) == looks
        assert sorted(ordered(zygote, Order.DEMOTE)) == sorted([first.number, second.number])


def test_looks_follow_each_other_where_each_is_answered():
    with supervised(FIRST, waiting=[]) as (tool, zygote):
        both_begun(tool, zygote)
        assert becomes(lambda: len(ordered(zygote, Order.INSPECT)) > 3)


def test_a_zygote_that_does_not_listen_holds_up_no_output():
    with supervised(FIRST) as (tool, zygote):
        assert [each.end for each in reports(tool, 1)] == [End.READY]
        _, out, _ = begun(zygote).others
        zygote.deaf = True
        for number in range(2000):
            tool.send(Request(Ask.PING, number).pack())
        writer = threading.Thread(target=os.write, args=(out, bytes(1 << 20)), daemon=True)
        writer.start()
        writer.join(20)
        assert not writer.is_alive()
        while len(ordered(zygote, Order.PING)) < 2000:  # all of them are there, once it does
            zygote.hear()
        assert ordered(zygote, Order.PING) == [*range(2000)]


def test_a_program_that_others_make_wait_has_longer_than_one_that_is_let_run():
    limits = LIMITS._replace(wall_seconds=1.5)
    with supervised(FIRST, limits, waiting=[]) as (tool, zygote):
        zygote.waiting = [1]
        first, second = both_begun(tool, zygote)
        assert (first.number, second.number) == (1, 2)
        assert becomes(lambda: ordered(zygote, Order.KILL))
        assert ordered(zygote, Order.KILL) == [2]
        for child in (first, second):
            zygote.end(child)
        ended = {each.call: each.end for each in reports(tool, 2)}
        assert ended == {1: End.EXITED, 2: End.TIMEOUT}


def test_a_program_that_always_waits_is_ended_all_the_same():
    limits = LIMITS._replace(wall_seconds=0.2)
    with supervised(FIRST, limits, waiting=[1]) as (tool, zygote):
        assert [each.end for each in reports(tool, 1)] == [End.READY]
        child = begun(zygote)
        assert becomes(lambda: ordered(zygote, Order.KILL) == [child.number])
        zygote.end(child)
        assert [each.end for each in reports(tool, 1)] == [End.TIMEOUT]
