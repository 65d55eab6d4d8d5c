"""A hostile provider of an API: redirects, echoes of the key, and answers without an end or a measure."""

from __future__ import annotations

import gzip
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.attack.ground import Box, running_with, until
from tests.attack.model import Attack

__all__ = ["ATTACKS", "ground"]

KEY, PROMPT = "sk-canary-0f3b2a91d6c74e55", "my word is plum"
KINDS = ("anthropic-api", "openai-api")
START_TIMES, LONG_S, GRACE_S = 3.0, 60.0, 30.0
"""Limit of a turn with an endless answer, in start times of a worker; limit of another turn in seconds; and the time after it within which the daemon must have ended the turn."""
WORKER_MB = 400.0
Handler = Callable[["_Handler"], None]


class _Handler(BaseHTTPRequestHandler):
    """Handler that plays what its server is told."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Keep the request, and play the answer."""
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        server: Any = self.server
        server.seen.append(f"{self.path} {self.headers} {body.decode(errors='replace')}")
        with suppress(OSError):
            server.answer(self)
        self.close_connection = True

    do_GET = do_POST

    def log_message(self, *_words: Any) -> None:
        """Print nothing."""

    def whole(self, status: int, body: bytes, **headers: str) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin(self, kind: str = "text/event-stream", **headers: str) -> None:
        """Send the head of an answer without a length."""
        self.send_response(200)
        for name, value in {"Content-Type": kind, "Connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def pour(self, piece: bytes, pause: float = 0.0, seconds: float = 60.0) -> None:
        """Send a piece again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.wfile.write(piece)
            time.sleep(pause)


class Provider:
    """Two servers on loopback: the provider `here`, and another host that must not hear anything."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.start_s = 0.0
        self.here, self.there = (self._server(name) for name in ("here", "there"))

    def _server(self, _name: str) -> Any:
        server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.seen, server.answer, server.daemon_threads = [], lambda handler: handler.whole(404, b"{}"), True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    @property
    def elsewhere(self) -> str:
        """Return the URL of the other host."""
        return f"http://localhost:{self.there.server_address[1]}"

    def turn(self, kind: str, answer: Handler, seconds: float = LONG_S) -> tuple[dict[str, Any], Any]:
        """Let a worker of this kind ask. Return the end of the turn, and the session."""
        self.here.answer = answer
        self.here.seen.clear()
        self.there.seen.clear()
        session = self.box.session(backend=kind)
        turn = session.prompt(PROMPT, timeout_s=seconds)
        until(lambda: session.events("turn_completed"), "the turn does not end", LONG_S * 2)
        end = session.end_of(turn)
        assert self.here.seen, f"the provider was not asked: {end}"
        return end, session


@contextmanager
def ground(chance: random.Random) -> Iterator[Provider]:
    """A daemon with a backend for each API, whose key is in a file."""
    with Box(chance) as box:
        provider = Provider(box)
        key = box.daemon.root / "key"
        key.write_text(KEY)
        key.chmod(0o600)
        port = provider.here.server_address[1]
        raw = "".join(
            f'[backends.{kind}]\nkind = "{kind}"\nmodel = "m"\nkey_env = "MY_KEY"\nenv_files = {{ MY_KEY = "{key}" }}\n'
            f'base_url = "http://127.0.0.1:{port}{"" if kind == "anthropic-api" else "/v1"}"\n'
            f"[backends.{kind}.limits]\nretries = 1\n"
            for kind in KINDS
        )
        box.daemon.configure(raw=raw)
        box.successor()
        began = time.monotonic()
        provider.turn(KINDS[0], lambda handler: handler.whole(400, b"{}"))
        provider.start_s = time.monotonic() - began
        yield provider


def redirected(status: int, kind: str, provider: Provider) -> str | None:
    """The provider sends the worker to another host."""

    def answer(handler: _Handler) -> None:
        handler.whole(
            status, b"", Location=f"{provider.elsewhere}/taken{handler.path}", Refresh=f"0; url={provider.elsewhere}"
        )

    provider.turn(kind, answer)
    text = "".join(provider.there.seen)
    found = [
        what for what, word in (("the key", KEY), ("the prompt", PROMPT), ("a request", "")) if text and word in text
    ]
    return f"another host got {found[0]}" if found else None


ECHOES: dict[str, Handler] = {
    "in a JSON error": lambda h: h.whole(401, json.dumps({"type": "error", "error": {"type": "x", "message": f"bad key {_key(h)}"}}).encode()),
    "in an error of another shape": lambda h: h.whole(400, json.dumps([_key(h), {_key(h): _key(h)}]).encode()),
    "in an HTML error": lambda h: h.whole(500, f"<html>{h.headers}</html>".encode(), Content_Type="text/html"),
    "in headers": lambda h: h.whole(429, b"{}", retry_after=_key(h), request_id=_key(h), x_request_id=_key(h)),
    "in an error of the stream": lambda h: (h.begin(), h.wfile.write(_error(h)))[0],
    "in a broken stream": lambda h: (h.begin(), h.wfile.write(f"data: {{{_key(h)}\n\n: {_key(h)}\nevent: {_key(h)}\n\n".encode()))[0],
    "in the reason": lambda h: h.wfile.write(f"HTTP/1.1 403 {_key(h)}\r\nContent-Length: 0\r\n\r\n".encode()) and None,
}  # fmt: skip


def _key(handler: _Handler) -> str:
    return str(handler.headers.get("x-api-key") or handler.headers.get("authorization", "")).removeprefix("Bearer ")


def _error(handler: _Handler) -> bytes:
    error = {
        "type": "error",
        "error": {"type": _key(handler), "message": _key(handler), "code": _key(handler)},
        "message": _key(handler),
    }
    return f"event: error\ndata: {json.dumps(error)}\n\n".encode()


def echoed(how: str, kind: str, provider: Provider) -> str | None:
    """The provider sends the key back. It must not stay anywhere."""
    _, session = provider.turn(kind, ECHOES[how])
    assert any(KEY in one for one in provider.here.seen), "the provider did not get the key"
    if KEY in json.dumps(session.events()):
        return "the key is in the events"
    for path in [*provider.box.daemon.state.rglob("*"), provider.box.daemon.log]:
        with suppress(OSError):
            if path.is_file() and KEY.encode() in path.read_bytes():
                return f"the key is in {path.name}"
    return None


BOMB = gzip.compress(bytes(200 << 20), 9)
ENDLESS: dict[str, Handler] = {
    "a stream without an end": lambda h: (h.begin(), h.pour(b": ping\n\n", 0.01))[0],
    "a line without an end": lambda h: (h.begin(), h.pour(b"data: " + b"x" * 65536))[0],
    "an error body without an end": lambda h: (h.send_response(500), h.send_header("Content-Type", "application/json"), h.end_headers(), h.pour(b"[" * 65536))[0],
    "an answer without a head": lambda h: h.pour(b"", 0.1),
    "a head without an end": lambda h: (h.wfile.write(b"HTTP/1.1 200 OK\r\n"), h.pour(b"X: " + b"x" * 60000 + b"\r\n", 0.01))[0],
    "continue without an end": lambda h: h.pour(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "one byte a second": lambda h: (h.begin(), h.pour(b"d", 0.9))[0],
    "a body of zeros, packed": lambda h: (h.begin(Content_Encoding="gzip"), h.wfile.write(BOMB))[0],
    "an error of zeros, packed": lambda h: h.whole(500, BOMB, Content_Encoding="gzip"),
    "events of 1 MiB without an end": lambda h: (h.begin(), h.pour(b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"' + b"x" * (1 << 20) + b'"}}\n\n', 0.005))[0],
}  # fmt: skip


def endless(how: str, kind: str, provider: Provider) -> str | None:
    """The provider answers without an end. The turn must end at its limit, in bounded memory, and others go on."""
    began, peak, limit = time.monotonic(), [0.0], max(5.0, START_TIMES * provider.start_s)
    stop = threading.Event()
    watch = threading.Thread(target=_watch, args=(stop, peak))
    watch.start()
    try:
        end, _ = provider.turn(kind, ENDLESS[how], limit)
    finally:
        stop.set()
        watch.join()
    took = time.monotonic() - began
    if end["outcome"] == "completed" and "zeros" not in how:
        return "the turn is completed"
    if took > limit + GRACE_S:
        return f"the turn ended after {took:.0f} s, with a limit of {limit:.0f}"
    if peak[0] > WORKER_MB:
        return f"the worker took {peak[0]:.0f} MB"
    return provider.box.neighbour_works() or None


def _watch(stop: threading.Event, peak: list[float]) -> None:
    while not stop.wait(0.1):
        for pid in running_with("clisup.worker"):
            with suppress(OSError, StopIteration, ValueError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                peak[0] = max(peak[0], next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")))


def reads(provider: Provider) -> str | None:
    """The provider keeps what it is asked."""
    provider.turn("anthropic-api", lambda handler: handler.whole(500, b"{}"))
    return "the provider has the prompt" if PROMPT in "".join(provider.here.seen) else None


ATTACKS = (
    *(Attack("A1", f"{status} of {kind}", partial(redirected, status, kind), (status, kind) == (307, KINDS[0]))
      for status in (301, 302, 303, 307, 308) for kind in (KINDS if status in (302, 307) else KINDS[:1])),
    *(Attack("A2", f"{how}, {kind}", partial(echoed, how, kind), (how, kind) == ("in a JSON error", KINDS[0]))
      for how in ECHOES for kind in (KINDS if how == "in a JSON error" else KINDS[:1])),
    *(Attack("A3", how, partial(endless, how, KINDS[0])) for how in ENDLESS),
    Attack("A4", "keep a prompt", reads, True),
)  # fmt: skip
