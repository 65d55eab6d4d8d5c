"""A loopback fake of the Anthropic Messages API, scripted by a scenario of `tests.e2e.scenarios`.

    with FakeMessagesAPI(SCENARIOS["text"]) as api:
        run_the_cli(env={"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": FAKE_KEY})
        assert api.main_requests[0].body["stream"]

Promises: it listens on 127.0.0.1 only; every request is recorded before it is answered; ids and usage numbers depend
on nothing but the scenario and the number of the request; leaving the context releases every stalled connection and
returns within a second or so. Stand-alone: `python -m tests.e2e.fake_messages_api --scenario text --port 0`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.e2e.scenarios import SCENARIOS, Answer, Cut, Event, Pause, Reply, Scenario, Stall, bland_reply, fold
from tests.e2e.served import Served, note_usage

FAKE_KEY = "fake-api-key"
FAKE_OAUTH_TOKEN = "fake-oauth-token"


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived. `main` is false for the CLI's side requests (titles, probes, token counts)."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    main: bool = False


def is_main(path: str, body: dict[str, Any]) -> bool:
    """Tell a request of the conversation from a side request: those bring no tools and no full system prompt."""
    if path.split("?")[0] != "/v1/messages" or body.get("max_tokens") == 1:
        return False
    system = body.get("system") or ""
    return bool(body.get("tools")) or len(json.dumps(system)) > 2000


class FakeMessagesAPI:
    """A context manager: `.url`, `.requests` (all), `.main_requests`, `.served`, `.release` (an Event that ends all stalls)."""

    def __init__(self, scenario: Scenario | str, port: int = 0) -> None:
        self.scenario = SCENARIOS[scenario] if isinstance(scenario, str) else scenario
        self.release = threading.Event()
        self.served = Served()
        self._lock = threading.Lock()
        self._requests: list[Recorded] = []
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.api = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def requests(self) -> list[Recorded]:
        with self._lock:
            return list(self._requests)

    @property
    def main_requests(self) -> list[Recorded]:
        return [request for request in self.requests if request.main]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what stalls and stop listening; may be called twice."""
        self.release.set()
        self._server.shutdown()
        self._server.server_close()

    def reply_to(self, request: Recorded) -> Reply:
        """Record the request, number it, and ask the scenario: the number counts main requests, from 0."""
        with self._lock:
            n = sum(earlier.main for earlier in self._requests)
            self._requests.append(request)
        reply = self.scenario.respond(request.body, n) if request.main else bland_reply(request.path, request.body)
        streams = bool(request.body.get("stream")) or not any(isinstance(step, Event) for step in reply)
        return reply if streams else fold(reply)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a stalled connection must not hold up close()
    api: FakeMessagesAPI

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed in mid-stream is the point of half of the scenarios: no traceback."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    _streaming = False

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        body: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            parsed = json.loads(raw)
            body = parsed if isinstance(parsed, dict) else {}
        self._answer(body)

    def do_GET(self) -> None:
        self._answer({})

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Stdout and stderr belong to whoever runs the fake."""

    def _answer(self, body: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(self.command, self.path, headers, body, is_main(self.path, body))
        reply = self.server.api.reply_to(request)
        self._streaming = False
        usage: dict[str, int] = {}
        self.server.api.served.begin()
        try:
            with contextlib.suppress(ConnectionError):
                if self._perform(reply, usage):
                    self.server.api.served.end(usage)
        finally:
            self.server.api.served.left()

    def _perform(self, reply: Reply, usage: dict[str, int]) -> bool:
        """Send the reply, and tell whether the client got a whole answer."""
        failed = False
        for step in reply:
            match step:
                case Answer():
                    note_usage(usage, step.body)
                    self._whole(step)
                    return True
                case Event():
                    note_usage(usage, step.data)
                    self._chunk(step.encode(), step.headers)
                    failed = failed or step.data.get("type") in ("error", "response.failed")
                case Pause():
                    self.server.api.release.wait(step.seconds)
                case Stall():
                    self.server.api.release.wait()
                    self._cut()
                    return False
                case Cut():
                    self._cut()
                    return False
        self._chunk(b"", {})
        return not failed

    def _whole(self, answer: Answer) -> None:
        payload = answer.encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", "request-id": "req_fake", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _chunk(self, data: bytes, headers: dict[str, str]) -> None:
        """Send one piece of the event stream; the response begins with the first piece, so a stall can precede it."""
        if not self._streaming:
            self._streaming = True
            self.send_response(200)
            for name, value in {"content-type": "text/event-stream", "request-id": "req_fake", **headers}.items():
                self.send_header(name, value)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _cut(self) -> None:
        """Drop the connection without the end of the body: by a reset, or the client could mistake it for an end."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="text", choices=sorted(SCENARIOS))
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    with FakeMessagesAPI(options.scenario, options.port) as api:
        print(api.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
