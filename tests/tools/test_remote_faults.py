"""The tier `remote` when a program fails the service, or the service fails every program."""

import asyncio
import json
import socket
from contextlib import ExitStack, asynccontextmanager

import pytest

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.sandbox.inside.frames import HALF
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.remote import Service
from forethought.tools.sandbox.turnstile import BusyError
from forethought.tools.sandbox.wording import worded
from forethought.tools.settings import PythonSettings

BAD = "take_the_worker_down()"
"""What a program holds that the services here cannot bear."""


def finished(stdout="", stderr="", code=0):
    result = {"status": "Finished", "return_code": code, "stdout": stdout, "stderr": stderr}
    return {"status": "Success", "run_result": result}


class Played:
    """A service on a free port: how it answers programs, and which it was sent."""

    def __init__(self, answer):
        self.answer = answer
        self.sent = []
        self.rests = []
        self.left = asyncio.Event()
        self.asked = asyncio.Event()

    async def rest(self, seconds):
        """What its client does instead of waiting."""
        self.rests.append(seconds)

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (
            int(line.split(b":")[1])
            for line in head.lower().splitlines()
            if line.startswith(b"content-length:")
        )
        code = json.loads(await reader.readexactly(length))["code"]
        self.sent.append(code)
        self.asked.set()
        try:
            await self.reply(self.answer(code), reader, writer)
        except ConnectionError:
            self.left.set()
        finally:
            writer.close()

    async def reply(self, answer, reader, writer):
        """A document, a status, both as bytes, a reset connection (None), or nothing (...)."""
        if answer is None:
            writer.transport.abort()
        elif answer is ...:
            await reader.read()
            self.left.set()
        elif isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        elif isinstance(answer, int):
            writer.write(b"HTTP/1.1 %d Sorry\r\nContent-Length: 0\r\n\r\n" % answer)
            await writer.drain()
        else:
            body = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()


@asynccontextmanager
async def played(answer):
    service = Played(answer)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield service, f"http://127.0.0.1:{port}"


def with_service(answer, go, **settings):
    """What `go` comes to with a client of the service and with the service."""

    async def run():
        async with played(answer) as (service, url):
            client = Service(PythonSettings(tier="remote", url=url, **settings), service.rest)
            try:
                return await go(client, service)
            finally:
                await client.__aexit__(None, None, None)

    return asyncio.run(run())


def of(code):
    """Run one program."""

    async def go(client, service):
        return await client.run(code), len(service.sent)

    return go


@pytest.mark.parametrize(
    "fault",
    [None, 500, 502, {"status": "SandboxError", "message": "the worker is gone"}, ["nonsense"]],
)
def test_a_program_that_fails_a_well_service_is_to_blame(fault):
    outcome, asked = with_service(lambda code: fault if BAD in code else finished("42\n"), of(BAD))
    assert outcome.kind is Kind.CRASH
    assert asked == 6  # three times, and another program after each


def test_a_service_that_is_back_after_a_pause_is_well():
    async def go(client, service):
        def answer(code):
            failed = sum(BAD in sent for sent in service.sent)
            return finished("42\n") if len(service.rests) == failed else None

        service.answer = answer
        return (await client.run(BAD)).kind

    assert with_service(..., go) is Kind.CRASH


def test_whether_a_service_is_well_is_asked_again_where_it_does_not_say():
    others = [503, *[finished("42\n")] * 3]
    outcome, asked = with_service(lambda code: 502 if BAD in code else others.pop(0), of(BAD))
    assert outcome.kind is Kind.CRASH
    assert asked == 3 + 4


def test_a_service_that_no_connection_reaches_has_not_taken_the_program():
    async def run(url):
        client = Service(PythonSettings(tier="remote", url=url))
        with pytest.raises(SandboxError, match="takes no program") as why:
            await client._try("1")
        await client.__aexit__(None, None, None)
        return str(why.value)

    with ExitStack() as open_ends, socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        for _ in range(3):  # more than wait to be accepted: what comes now is not answered
            end = open_ends.enter_context(socket.socket())
            end.setblocking(False)
            end.connect_ex(server.getsockname())
        assert "no connection" in asyncio.run(run(f"http://127.0.0.1:{server.getsockname()[1]}"))


@pytest.mark.parametrize("fault", [None, 429, 500, 502, 503, 504])
def test_a_service_that_runs_nothing_is_to_blame_itself(fault):
    with pytest.raises(SandboxError, match="is the service well"):
        with_service(lambda code: fault, of(BAD))


def test_a_service_that_comes_back_runs_the_program_after_all():
    answers = [None, 503, None, 429, 502, finished("7\n")]
    outcome, asked = with_service(lambda code: answers.pop(0), of("7"))
    assert (outcome.kind, outcome.out, asked) == (Kind.OK, b"7\n", 6)


@pytest.mark.parametrize("fault", [429, 503])
def test_a_program_that_a_service_does_not_take_is_never_to_blame(fault):
    with pytest.raises(SandboxError, match=rf"/run_code takes no program .*: {fault} Sorry"):
        with_service(lambda code: fault if BAD in code else finished("42\n"), of(BAD))


def test_a_program_is_not_to_blame_where_another_failed_too():
    others = [finished("42\n"), 502, finished("42\n")]
    with pytest.raises(SandboxError, match="502"):
        with_service(lambda code: 502 if BAD in code else others.pop(0), of(BAD))


def test_what_a_service_asks_to_wait_is_waited_and_otherwise_ever_more():
    slow = b"HTTP/1.1 429 Sorry\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n"
    answers = [503, slow % b"20", slow % b"999999", slow % b"Fri, 31 Dec", finished("7\n")]

    async def go(client, service):
        return (await client.run("7")).out, service.rests

    out, (first, *asked, last) = with_service(lambda code: answers.pop(0), go)
    assert out == b"7\n"
    assert 0.25 <= first <= 0.75
    assert asked == [20.0, 30.0]
    assert 2.0 <= last <= 6.0


def test_the_model_reads_that_its_program_was_to_blame():
    outcome, _ = with_service(lambda code: 500 if BAD in code else finished("42\n"), of(BAD))
    text = worded(outcome, PythonSettings())
    assert text == "[the process was ended by a fault that its service could not bear]"


def test_more_output_than_is_read_is_the_programs_doing():
    outcome, asked = with_service(lambda code: finished("x" * 70_000_000), of("print(…)"))
    assert outcome.kind is Kind.OUTPUT
    assert outcome.out_bytes > 64 << 20
    assert asked == 1


def test_a_stream_as_long_as_other_tiers_stop_is_stopped_and_keeps_its_ends():
    most = 16 << 20
    for length, kind in ((most, Kind.OK), (most + 1, Kind.OUTPUT)):
        said = "head" + "x" * (length - 8) + "tail"
        outcome, _ = with_service(lambda code, said=said: finished(said), of("1"))
        assert (outcome.kind, outcome.out_bytes, outcome.truncated) == (kind, length, True)
        assert len(outcome.out) == 2 * HALF
        assert outcome.out.startswith(b"head")
        assert outcome.out.endswith(b"tail")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_long_streams_are_kept_at_both_ends(stream):
    said = finished(**{stream: "a" * HALF + "b" * 10 + "c" * HALF})
    outcome, _ = with_service(lambda code: said, of("1"))
    kept, total = {
        "stdout": (outcome.out, outcome.out_bytes),
        "stderr": (outcome.err, outcome.err_bytes),
    }[stream]
    assert kept == b"a" * HALF + b"c" * HALF
    assert total == 2 * HALF + 10


def test_half_of_a_surrogate_pair_from_a_service_is_no_failure():
    outcome, _ = with_service(lambda code: finished("\ud83d"), of("1"))
    assert (outcome.kind, outcome.out) == (Kind.OK, b"?")


def test_cancelling_a_call_closes_its_connection_to_a_silent_service():
    async def go(client, service):
        call = asyncio.create_task(client.run("1"))
        await service.asked.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        async with asyncio.timeout(20):
            await service.left.wait()
        return call.cancelled()

    assert with_service(lambda code: ..., go)


def test_a_service_that_keeps_failing_stops_the_run_and_is_named():
    async def go(client, service):
        failures = 0
        with pytest.raises(RecipeError, match=r"51 of its last 51 programs, .*/run_code: is the"):
            while True:
                try:
                    await client.run("1")
                except SandboxError:
                    failures += 1
        return failures

    assert with_service(lambda code: 500, go) == 50


def test_programs_that_crash_and_a_full_line_stop_no_run():
    async def go(client, service):
        for _ in range(60):
            assert (await client.run(BAD)).kind is Kind.CRASH
        calls = (client.run("1") for _ in range(100))
        ended = await asyncio.gather(*calls, return_exceptions=True)
        return sum(isinstance(each, BusyError) for each in ended)

    narrow = {"servers": 1, "calls_per_server": 1, "queue": 1}
    refused = with_service(lambda code: 500 if BAD in code else finished("42\n"), go, **narrow)
    assert refused == 98
