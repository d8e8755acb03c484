"""The tier `remote`, against a small service that speaks as SandboxFusion does."""

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from forethought.core.errors import RecipeError, SandboxError
from forethought.tools.python_tool import PythonTool
from forethought.tools.sandbox.outcome import Kind
from forethought.tools.sandbox.remote import Service
from forethought.tools.sandbox.tiers import open_service
from forethought.tools.settings import PythonSettings


def run_code(asked):
    """Run the program as the service does, and answer in its words."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", asked["code"]],
            input=asked["stdin"],
            capture_output=True,
            text=True,
            check=False,
            timeout=asked["run_timeout"],
        )
    except subprocess.TimeoutExpired as late:
        result = {"status": "TimeLimitExceeded", "stdout": (late.stdout or b"").decode()}
        return {"status": "Failed", "run_result": result}
    result = {
        "status": "Finished",
        "execution_time": 0.25,
        "return_code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
    }
    return {"status": "Success" if done.returncode == 0 else "Failed", "run_result": result}


@contextmanager
def service(answer=run_code, failures=0):
    """A server on a free port; the first `failures` requests are refused."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, asked))
            if len(seen) <= failures:
                self.send_error(503)
                return
            body = json.dumps(answer(asked)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def settings(url, **others):
    return PythonSettings(tier="remote", url=url, **others)


async def at_once(seconds):
    """No rest between the times that a program is sent."""


def run_one(url, code, stdin="", **others):
    return asyncio.run(Service(settings(url, **others), at_once).run(code, stdin))


def test_programs_run_where_the_address_says():
    async def run(url):
        async with PythonTool(settings(url)) as tool:
            assert tool.opened.tier == "remote"
            return await tool.opened.backend.run("x = 20\nx + 1")

    with service() as (url, seen):
        outcome = asyncio.run(run(f"{url}/"))
    assert (outcome.kind, outcome.out, outcome.seconds) == (Kind.OK, b"21\n", 0.25)
    assert {path for path, _ in seen} == {"/run_code"}
    assert seen[0][1]["language"] == "python"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("print(input())", Kind.OK),
        ("1 / 0", Kind.ERROR),
        ("raise MemoryError", Kind.MEMORY),
        ("import os\nos.abort()", Kind.CRASH),
        ("while True: pass", Kind.TIMEOUT),
    ],
)
def test_what_the_service_says_becomes_an_outcome(code, kind):
    with service() as (url, _):
        assert run_one(url, code, "hello\n", wall_seconds=1.0).kind is kind


def test_a_service_that_fails_twice_is_asked_a_third_time():
    with service(failures=2) as (url, seen):
        assert run_one(url, "6 * 7").out == b"42\n"
    assert len(seen) == 3


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: {"status": "SandboxError", "message": "no room"},
        lambda asked: ["no", "object"],
        lambda asked: {"status": "Success"},
        lambda asked: {"status": "Failed", "run_result": {"status": "Error"}},
    ],
)
def test_a_service_that_cannot_run_programs_is_infrastructure(answer):
    with service(answer) as (url, seen), pytest.raises(SandboxError):
        run_one(url, "6 * 7")
    assert len(seen) == 5 + 1  # and one other program


def test_a_service_that_is_not_there_is_infrastructure():
    with service() as (url, _):
        pass
    with pytest.raises(SandboxError, match="is the service well"):
        run_one(url, "6 * 7")


def refused(url):
    """Why a service is not taken, and what a program sent to it afterwards ends as."""

    async def run():
        client = Service(settings(url), at_once)
        with pytest.raises(RecipeError) as why:
            await open_service(client)
        with pytest.raises(SandboxError) as after:
            await client.run("1")
        return str(why.value), str(after.value)

    return asyncio.run(run())


def test_a_service_that_is_not_there_is_refused_with_its_address_and_closed():
    with service() as (url, _):
        pass
    why, after = refused(url)
    assert why.startswith(f"tool.url='{url}' runs no program")
    assert "start the service, or give the address of one that is up" in why
    assert "client has been closed" in after


def test_a_service_that_computes_wrongly_is_refused_and_closed():
    wrong = {"status": "Success", "run_result": {"status": "Finished", "return_code": 0}}
    with service(lambda asked: wrong) as (url, _):
        why, after = refused(url)
    assert "first program, 6 * 7, ended as ok with b''" in why
    assert "client has been closed" in after


def test_the_address_is_needed():
    with pytest.raises(RecipeError, match=r"needs tool\.url"):
        Service(settings(""))


def test_sessions_are_not_to_be_had():
    with pytest.raises(RecipeError, match="session"):
        Service(settings("http://localhost")).open_session()
