"""A server on the loopback that takes POSTs: it keeps what came, and answers as told, or not at all."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Taken(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class WebhookServer:
    """`answer` is the status of the next answers. While `silent` is set there are none."""

    def __init__(self, answer: int = 200) -> None:
        self.answer = answer
        self.extra: dict[str, str] = {}
        self.silent = threading.Event()
        self.taken: list[Taken] = []
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.take(self)

            def do_GET(self) -> None:
                outer.take(self)

            def log_message(self, *_args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_args: object) -> None:  # a daemon that is killed hangs up
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.taken.append(Taken(request.path, headers, body))
        if self.silent.is_set():
            self._closing.wait(60)
            return
        request.send_response(self.answer)
        for name, value in self.extra.items():
            request.send_header(name, value)
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"ok")

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
