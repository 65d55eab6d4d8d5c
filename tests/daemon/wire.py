"""A client of one raw socket, for tests: every wait is bounded, and each frame can be looked at as it came."""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Self

from clisup.errors import error_from_wire

PATIENCE_S = 40.0
"""Far above what anything here takes: a loaded machine must not fail a test."""


def pauses() -> Iterator[float]:
    """How long to sleep between two looks: what comes soon is seen at once, what takes long is not asked for all the time."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.25, 0.03)


class Hangup(Exception):
    """The daemon closed the connection."""


class Wire:
    """`call` for a request and its answer; `send` and `frame` for what is not so orderly."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self._data = bytearray()
        self._ready: deque[bytes] = deque()
        self._answers: dict[Any, dict[str, Any]] = {}
        self.pushed: deque[dict[str, Any]] = deque()
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def post(self, method: str, /, **params: Any) -> int:
        """Send a request; `answer` fetches what comes of it."""
        self._last += 1
        self.send({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def send(self, frame: dict[str, Any] | bytes) -> None:
        self.socket.sendall(frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n")

    def call(self, method: str, /, **params: Any) -> Any:
        """The result; raises the `ClisupError` that the daemon sent."""
        return self.answer(self.post(method, **params))

    def answer(self, id_: Any) -> Any:
        """The result of one request. What the daemon pushes meanwhile is kept in `pushed`."""
        until = time.monotonic() + PATIENCE_S
        while id_ not in self._answers:
            frame = self.frame()
            if "method" in frame:
                self.pushed.append(frame)
            else:
                self._answers[frame["id"]] = frame
            assert time.monotonic() < until, f"no answer to request {id_}"
        frame = self._answers.pop(id_)
        if "error" in frame:
            raise error_from_wire(frame["error"])
        return frame["result"]

    def frame(self) -> dict[str, Any]:
        """The next frame, whatever it is. Raises `Hangup` at the end."""
        return dict(json.loads(self.line()))

    def line(self) -> bytes:
        while not self._ready:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Hangup
            *lines, rest = data.split(b"\n")
            for line in lines:
                self._ready.append(bytes(self._data) + line)
                self._data.clear()
            self._data += rest
        return self._ready.popleft()

    def event(self) -> dict[str, Any]:
        """The next event of any subscription."""
        while not self.pushed:
            frame = self.frame()
            if frame.get("method") == "session/event":
                return dict(frame["params"])
            self._answers[frame.get("id")] = frame
        return dict(self.pushed.popleft()["params"])

    def events_until(self, type_: str, turns: int = 1) -> list[dict[str, Any]]:
        """Events up to the `turns`-th one of `type_`, which is the last."""
        events: list[dict[str, Any]] = []
        while turns:
            events.append(self.event())
            turns -= events[-1]["type"] == type_
        return events
