"""A server on the loopback that takes POSTs: it keeps what came, and answers as told, or not at all."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from loopback_server import LoopbackServer


class Taken(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class WebhookServer(LoopbackServer):
    """`taken` are the requests, also those that follow a redirect; `extra` are further headers of the answers."""

    takes_get = True

    def __init__(self, answer: int = 200) -> None:
        self.extra: dict[str, str] = {}
        self.taken: list[Taken] = []
        super().__init__(answer)

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
