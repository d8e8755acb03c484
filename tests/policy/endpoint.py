"""A real HTTP server that answers as it was told to."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from forethought.policy.remote import RemoteSettings

Answer = tuple[int, object]


class Endpoint:
    """Scripted answers, given in order, and a memory of what was asked.

    An answer without a body keeps the client waiting until the server closes.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.busy = self.peak = 0
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.url = ""

    def settings(self, **fields: Any) -> RemoteSettings:
        return RemoteSettings.model_validate({"base_url": self.url, "model": "m", **fields})

    def answer(self, request: BaseHTTPRequestHandler) -> Answer:
        length = int(request.headers.get("content-length") or 0)
        with self.lock:
            self.asked.append(json.loads(request.rfile.read(length)) if length else {})
            self.keys.append(request.headers.get("authorization"))
            return self.answers.pop(0)


@contextmanager
def serving(*answers: Answer) -> Iterator[Endpoint]:
    endpoint = Endpoint(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with endpoint.lock:
                endpoint.busy += 1
                endpoint.peak = max(endpoint.peak, endpoint.busy)
            status, body = endpoint.answer(self)
            if body is None:
                endpoint.released.wait()
                return
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            with endpoint.lock:
                endpoint.busy -= 1
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
