"""Hostile programs in every tier: each ends as it may, reaches nothing, and harms no call after.

The tier `namespaces` must run wherever the tests run. The lower ones are forced, with a server
that is started with fewer rights than the tests have.
"""

from collections import Counter

import pytest

from forethought.tools.sandbox.outcome import Kind
from tools.hostile import ATTEMPT, PROGRAMS

LOWER = {Kind.OK, Kind.ERROR}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_ends_as_it_may_and_reaches_nothing(tier, host, name):
    program = PROGRAMS[name]
    outcome = tier.run(host.fill_in(ATTEMPT + program.code))
    written = outcome.out + outcome.err
    allowed = {Kind(kind) for kind in program.kinds}
    if program.refused and tier.name != "namespaces":
        allowed |= LOWER
    assert outcome.kind in allowed, written[-2000:]
    assert b"ESCAPED" not in written
    assert host.secret.encode() not in written
    assert host.untouched()
    after = tier.run("import math\nmath.factorial(5)")
    assert (after.kind, after.out) == (Kind.OK, b"120\n")


def test_nothing_arrived_from_any_program(tier, host):
    for attack in (
        "connects to the host",
        "sends datagrams",
        "talks to an abstract socket",
        "talks past the other end of a pair",
    ):
        tier.run(host.fill_in(ATTEMPT + PROGRAMS[attack].code))
    receivers = {
        host.tcp: host.tcp.accept,
        host.udp: lambda: host.udp.recv(1),
        host.abstract: lambda: host.abstract.recv(1),
        host.named: lambda: host.named.recv(1),
    }
    for listener, receive in receivers.items():
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            receive()


def test_there_are_programs_of_every_group():
    sizes = Counter(program.group for program in PROGRAMS.values())
    groups = {"time", "processes", "memory", "files", "network", "kernel", "harness"}
    assert {*sizes} == groups
    assert min(sizes.values()) >= 5
    assert len(PROGRAMS) >= 80
