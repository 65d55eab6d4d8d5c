"""The well-behaved client, in a process of its own: `python -m tests.crowd.good SOCKET SESSION SECONDS`.

One connection that follows a session that streams and, once that is answered, pings 20 times a second, the next one not
before the last answer. Where an answer is late, the pings that were due meanwhile count as well, each by how late it would
have been (the correction of HdrHistogram): slow answers hide nothing. It prints its figures as JSON: the time to its first
answer, every ping's, every event's from its `ts` to its arrival, and what it missed.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

PING_EVERY_S = 1 / 20
NICENESS = -10  # its own lateness is not the daemon's; only root may
PATIENCE_S = 10.0  # for the first answer, and for all that is owed after the scene


class Good:
    """Send what is due, take what comes."""

    def __init__(self, sock: socket.socket, session: str) -> None:
        self._sock = sock
        self._rest = b""
        self._session = session
        self._next = 0.0  # when the next ping is due
        self._sent: float | None = None  # when that which has no answer yet was due
        self._answers: dict[str, Any] = {}
        self.pings_ms: list[float] = []
        self.lags_ms: list[float] = []
        self.seqs: list[int] = []
        self.refused = 0
        self.hello_ms = 0.0

    def run(self, seconds: float) -> None:
        """Ping and follow; then wait for what is still owed."""
        came = time.monotonic()
        self._ask("subscribe", "session/subscribe")
        self._until(lambda: "subscribe" in self._answers, came + PATIENCE_S)
        self._next = began = time.monotonic()
        self.hello_ms = (began - came) * 1000
        while (now := time.monotonic()) < began + seconds:
            if now >= self._next and self._sent is None:
                self._sock.sendall(b'{"id":1,"method":"ping"}\n')
                self._sent = self._next
            self._take(max(0.0, self._next - time.monotonic()) if self._sent is None else PING_EVERY_S)
        self._ask("get", "session/get")
        self._until(self._is_served, time.monotonic() + PATIENCE_S)

    def _answered(self, now: float) -> None:
        assert self._sent is not None
        while self._next < now:
            self.pings_ms.append((now - self._next) * 1000)
            self._next += PING_EVERY_S
        self._sent = None

    @property
    def first(self) -> int:
        """First seq after the subscription. Without an answer no event is expected, which is a broken promise too."""
        return int(self._answers["subscribe"]["next_seq"]) if "subscribe" in self._answers else self.last + 1

    @property
    def last(self) -> int:
        """Last seq that was journaled when the scene ended."""
        return int(self._answers["get"]["next_seq"]) - 1 if "get" in self._answers else -1

    def figures(self) -> dict[str, Any]:
        wanted = set(range(self.first, self.last + 1))
        unanswered = (self._sent is not None) + self.refused + 2 - len(self._answers)
        return {
            "pings_ms": self.pings_ms, "unanswered": unanswered, "lags_ms": self.lags_ms, "hello_ms": round(self.hello_ms, 1),
            "events": len(self.seqs), "expected": len(wanted), "lost": len(wanted - set(self.seqs)),
            "doubled_or_late": sum(b <= a for a, b in zip(self.seqs, self.seqs[1:], strict=False)),
        }  # fmt: skip

    def _ask(self, id_: str, method: str) -> None:
        request = {"id": id_, "method": method, "params": {"session_id": self._session}}
        self._sock.sendall(json.dumps(request).encode() + b"\n")

    def _is_served(self) -> bool:
        """Tell whether all answers and all events up to the last one are there."""
        return "get" in self._answers and self._sent is None and self.seqs[-1:] >= [self.last]

    def _until(self, done: Callable[[], bool], end: float) -> None:
        while not done() and time.monotonic() < end:
            self._take(0.1)

    def _take(self, patience: float) -> None:
        if not select.select([self._sock], [], [], patience)[0]:
            return
        data = self._sock.recv(1 << 18)
        if not data:
            raise SystemExit("the daemon hung up on its well-behaved client")
        now, wall = time.monotonic(), time.time()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            frame = json.loads(line)
            if frame.get("method") == "session/event":
                self.seqs.append(frame["params"]["seq"])
                self.lags_ms.append((wall - datetime.fromisoformat(frame["params"]["ts"]).timestamp()) * 1000)
            elif isinstance(frame["id"], int) and "result" in frame:
                self._answered(now)
            elif "result" in frame:
                self._answers[frame["id"]] = frame["result"]
            else:
                self.refused += 1
                self._sent = None


def main() -> None:
    path, session, seconds = sys.argv[1:]
    try:
        os.nice(NICENESS)
    except PermissionError:
        pass
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        good = Good(sock, session)
        good.run(float(seconds))
    print(json.dumps(good.figures()))


if __name__ == "__main__":
    main()
