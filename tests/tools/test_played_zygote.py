"""What the supervisor makes of a zygote whose children die at once: the test plays the zygote."""

import os
import select
import socket
import threading
from contextlib import contextmanager

import pytest

from forethought.tools.sandbox.inside.frames import (
    FAULT,
    NEWS,
    ORDER,
    START,
    Ask,
    End,
    Order,
    Request,
    pack_waiting,
    take_report,
)
from forethought.tools.sandbox.inside.limits import Limits
from forethought.tools.sandbox.inside.serving import Serving
from forethought.tools.sandbox.inside.zygote import READY

LIMITS = Limits("namespaces", 5.0, 5, 64, 8, 60.0, (), (), ())
REASON = b"mount(/tmp): No space left on device"


class Child:
    """A child that was ordered, as its zygote holds it."""

    def __init__(self, number, descriptors):
        self.number = number
        go, *self.others = descriptors
        self.go = socket.socket(fileno=go)

    def close(self):
        self.go.close()
        for descriptor in self.others:
            os.close(descriptor)


class Zygote(socket.socket):
    """The supervisor's end of the wire to a zygote that is played where orders are given.

    `doomed` children die as soon as they are ordered, so that what they said and the news of
    their end are there together; the others say that they are ready. It hears `orders`, unless it
    is `deaf`, and says of those in `waiting` that it is not their turn; while that is None, looks
    stay `unanswered`.
    """

    def __init__(self, ours, theirs, *, doomed=0, said=b"", waiting=None):
        super().__init__(fileno=ours.detach())
        self.theirs = theirs
        self.doomed = doomed
        self.said = said
        self.waiting = waiting
        self.unanswered = 0
        self.deaf = False
        self.orders = []
        self.children = {}

    def sendmsg(self, buffers, ancillary=(), flags=0, address=None):
        sent = super().sendmsg(buffers, ancillary, flags)
        message, descriptors, _, _ = socket.recv_fds(self.theirs, ORDER.size, 4)
        order, number = ORDER.unpack(message)
        assert order == Order.ARM
        child = self.children[number] = Child(number, descriptors)
        if self.doomed:
            self.doomed -= 1
            if self.said:
                child.go.send(self.said)
            self.end(child)
        else:
            child.go.send(READY)
        return sent

    def send(self, data, flags=0):
        sent = super().send(data, flags)
        if not self.deaf:  # a child ends when the test says so, whatever is ordered
            self.hear()
        return sent

    def hear(self):
        order, number = ORDER.unpack(self.theirs.recv(ORDER.size))
        self.orders.append((Order(order), number))
        if order == Order.INSPECT:
            self.answer(self.waiting)

    def answer(self, waiting):
        if waiting is None:
            self.unanswered += 1
        else:
            self.theirs.send(pack_waiting(waiting))

    def end(self, child):
        del self.children[child.number]
        child.close()
        self.theirs.send(NEWS.pack(child.number, 0, End.EXITED, 0.0))


@contextmanager
def supervised(first, limits=LIMITS, **played):
    """A supervisor at work, asked for `first` already: the tool's end of its wire, its zygote."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tool, wire = socket.socketpair()
    zygote = Zygote(ours, theirs, **played)
    tool.settimeout(20)
    tool.send(first.pack())
    serving = Serving(wire, zygote, limits)
    thread = threading.Thread(target=serving.serve, daemon=True)
    thread.start()
    try:
        yield tool, zygote
    finally:
        tool.close()
        thread.join(20)
        for child in (*zygote.children.values(), *serving._places.values()):
            child.close()
        for each in (wire, zygote, theirs):
            each.close()


def reports(tool, count):
    """The next reports."""
    buffer, found = bytearray(), []
    while len(found) < count:
        data = tool.recv(1 << 16)
        assert data
        buffer += data
        while (report := take_report(buffer)) is not None:
            found.append(report)
    return found


@pytest.mark.parametrize("said", [FAULT + REASON, b""])
def test_a_program_is_refused_for_a_child_that_died_unheard_and_the_next_one_runs(said):
    with supervised(Request(Ask.RUN, 1, code=b"1"), doomed=2, said=said) as (tool, zygote):
        refused = reports(tool, 2)
        # One death answers for the program, the other for a server that has begun nothing yet.
        assert [(each.call, each.end) for each in refused] == [(1, End.SETUP), (0, End.SETUP)]
        assert {each.err for each in refused} == {said.removeprefix(FAULT)}

        tool.send(Request(Ask.RUN, 2, code=b"22").pack())
        assert [(each.call, each.end) for each in reports(tool, 1)] == [(0, End.READY)]
        assert end_of_a_program(zygote) == (False, 2)
        assert [(each.call, each.end) for each in reports(tool, 1)] == [(2, End.EXITED)]


def test_a_program_that_waits_for_its_session_answers_for_no_other_child():
    asked = Request(Ask.RUN, 1, session=7, code=b"1")
    with supervised(asked, doomed=0, said=b"") as (tool, zygote):
        assert [each.end for each in reports(tool, 1)] == [End.READY]
        first = begun(zygote)
        zygote.doomed, zygote.said = 1000, FAULT + REASON
        # The first program is given up, but its child has not ended yet: the second waits for that.
        # Two more take what children there are. For the fifth, none can be made.
        for request in (
            Request(Ask.CANCEL, 1),
            Request(Ask.RUN, 2, session=7, code=b"2"),
            *(Request(Ask.RUN, number, code=b"3") for number in (3, 4, 5)),
        ):
            tool.send(request.pack())
        (refused,) = reports(tool, 1)
        assert (refused.call, refused.end, refused.err) == (5, End.SETUP, REASON)
        zygote.doomed = 0
        zygote.end(first)
        (ended,) = reports(tool, 1)
        assert (ended.call, ended.end) == (1, End.TIMEOUT)


def begun(zygote):
    """The child that has been given a program."""
    by_wire = {child.go: child for child in list(zygote.children.values())}
    readable, _, _ = select.select(list(by_wire), [], [], 20)
    return by_wire[readable[0]]


def end_of_a_program(zygote):
    """What a child was told of its program; then it ends."""
    child = begun(zygote)
    told = START.unpack(child.go.recv(START.size))
    zygote.end(child)
    return told
