"""Programs that a host short of memory has ended, or may have: they run once more, alone."""

import asyncio
import signal
from itertools import chain, repeat

import pytest

from forethought.tools.host_memory import processes_ended
from forethought.tools.sandbox.inside.frames import End, Report
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.wording import worded
from forethought.tools.settings import PythonSettings
from tools.test_pool import ANSWERS, DIES, Starts

ONE = PythonSettings(servers=1)
KILLED = Report(1, End.EXITED, status=signal.SIGKILL, out=b"so far\n", out_bytes=7)


def run(counts, *scripts, in_session=False):
    """What a program ends as, where the kernel counts so and servers answer so."""

    async def go():
        starts = Starts(*scripts)
        told = chain(counts, repeat(counts[-1]))
        async with Pool(ONE, starts, evictions=lambda: next(told)) as pool:
            session = pool.open_session() if in_session else None
            outcome = await pool.run("1", session=session)
        assert all(server.closed for server in starts.servers)
        return outcome, [len(server.ran) for server in starts.servers]

    return asyncio.run(go())


def test_a_program_that_was_ended_for_another_runs_to_its_end_alone():
    outcome, ran = run([0, 1], [KILLED], [ANSWERS])
    assert (outcome.kind, outcome.out) == (Kind.OK, b"42\n")
    assert ran == [1, 1]


def test_a_program_that_is_ended_alone_too_is_out_of_memory_and_told_so():
    outcome, ran = run([0, 1, 1, 2], [KILLED], [KILLED])
    assert (outcome.kind, ran) == (Kind.MEMORY, [1, 1])
    assert worded(outcome, ONE) == "so far\n[stopped: the host was short of memory]"


def test_a_program_that_kills_itself_when_it_is_alone_is_a_crash():
    outcome, _ = run([0, 1], [KILLED], [KILLED])
    assert (outcome.kind, outcome.detail) == (Kind.CRASH, "SIGKILL")


def test_a_program_that_takes_the_server_with_it_when_it_is_alone_is_a_crash():
    outcome, _ = run([0, 1], [KILLED], [DIES])
    assert (outcome.kind, outcome.detail) == (Kind.CRASH, "a fault that ended its server")


@pytest.mark.parametrize(
    ("counts", "report", "kind"),
    [
        ([0], KILLED, Kind.CRASH),
        ([5], KILLED, Kind.CRASH),
        ([0, 1], ANSWERS, Kind.OK),
        ([0, 1], KILLED._replace(end=End.TIMEOUT), Kind.TIMEOUT),
        ([0, 1], KILLED._replace(end=End.MEMORY), Kind.MEMORY),
        ([0, 1], KILLED._replace(cpu=60.0), Kind.CPU),
        ([0, 1], KILLED._replace(status=signal.SIGSEGV), Kind.CRASH),
    ],
)
def test_what_ended_in_another_way_is_not_run_again(counts, report, kind):
    outcome, ran = run(counts, [report])
    assert (outcome.kind, ran) == (kind, [1])


def test_a_program_that_was_ended_with_its_session_runs_alone_without_the_variables():
    outcome, ran = run([0, 1], [KILLED], [ANSWERS], in_session=True)
    assert (outcome.out, outcome.state_lost, ran) == (b"42\n", True, [1, 1])


def test_the_kernels_count_is_read(tmp_path):
    assert processes_ended(tmp_path) == 0
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 7\noom_kill 3\nballoon_inflate 0\n")
    assert processes_ended(tmp_path) == 3
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 7\n")
    assert processes_ended(tmp_path) == 0
    assert processes_ended() >= 0
