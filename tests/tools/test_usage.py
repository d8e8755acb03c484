"""What a sandbox did, counted while it does it, and kept apart from its attacks on itself."""

import asyncio

import pytest

from forethought.core.errors import SandboxError
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.usage import INFRASTRUCTURE, Usage, read_usage
from forethought.tools.settings import PythonSettings
from tools.test_pool import ANSWERS, CANNOT_BEGIN, DIES, Starts
from tools.test_remote_faults import BAD, finished, with_service


def test_programs_are_counted_by_how_they_ended_and_servers_by_why_they_were_replaced():
    async def run():
        starts = Starts([DIES], [ANSWERS], [CANNOT_BEGIN])
        async with Pool(PythonSettings(servers=1), starts) as pool:
            assert pool.usage == Usage()
            await pool.run("6 * 7")
            with pytest.raises(SandboxError):
                await pool.run("6 * 7")
            return pool.usage

    found = asyncio.run(run())
    assert found.ended == {Kind.OK: 1, INFRASTRUCTURE: 1}
    assert found.replaced == {"dead": 1}
    assert found.trouble == "1 of 2 programs could not be run, servers were replaced (dead 1)"


def test_what_programs_waited_is_added_up(sandbox):
    backend = sandbox.tool.opened.backend

    async def run():
        before = backend.usage
        outcomes = await asyncio.gather(*(backend.run("1") for _ in range(30)))
        return outcomes, backend.usage.since(before)

    outcomes, found = sandbox.runner.run(run())
    assert found.programs == 30
    assert found.queued == pytest.approx(sum(outcome.queued for outcome in outcomes))
    assert found.queued_each > 0


def test_the_attacks_at_the_start_are_no_usage_of_the_tool(sandbox):
    async def run():
        async with PythonTool(PythonSettings(servers=1)) as tool:
            before = tool.usage
            await tool.opened.backend.run("1 / 0")
            return before, tool.usage

    before, after = sandbox.runner.run(run())
    assert before.programs == 0
    assert after.ended == {Kind.ERROR: 1}


def test_a_service_counts_its_programs_too():
    async def go(client, service):
        await client.run("1")
        await client.run(BAD)
        return client.usage

    found = with_service(lambda code: 500 if BAD in code else finished("42\n"), go)
    assert found.ended == {Kind.OK: 1, Kind.CRASH: 1}
    assert found.queued > 0


def test_a_service_that_runs_nothing_is_counted_as_infrastructure():
    async def go(client, service):
        with pytest.raises(SandboxError):
            await client.run("1")
        return client.usage

    assert with_service(lambda code: 500, go).ended == {INFRASTRUCTURE: 1}


def test_a_usage_without_programs_waited_for_nothing_and_has_no_trouble():
    assert (Usage().queued_each, Usage().trouble) == (0.0, "")


@pytest.mark.parametrize(
    "document", [{"ended": 3}, {"queued": "long"}, {"replaced": {"dead": "x"}}]
)
def test_a_document_that_is_no_usage_is_refused(document):
    with pytest.raises(ValueError, match="validation error"):
        read_usage(document)
