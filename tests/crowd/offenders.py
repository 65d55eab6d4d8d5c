"""Many greedy or broken clients in one process of its own: `python -m tests.crowd.offenders KIND SOCKET COUNT SESSION`.

They go on until stdin ends, and then print what came of it as JSON. Batches are encoded once and sockets are waited for by
epoll: what a flood costs should be the daemon's work, not this one's. The process is nice (see docs/proofs/README.md).
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import sys
import time
from collections.abc import Callable

__all__ = ["KINDS"]

NICENESS = 19
BATCH = 700  # frames of a batch: ids are used again, but never twice at once (a connection runs 64 requests at most)
HALF_BYTES = 1024 * 1024
RECONNECT_S = 1.0  # as `retry_after_s` says, and not all in one breath


def _requests(method: str, params: dict[str, object]) -> bytes:
    return b"".join(
        json.dumps({"id": id_, "method": method, "params": params}).encode() + b"\n" for id_ in range(BATCH)
    )


def _never_reader(session: str) -> bytes:
    subscribe = {"id": "s", "method": "session/subscribe", "params": {"session_id": session, "after_seq": 0}}
    return json.dumps(subscribe).encode() + b"\n" + _requests("session/events", {"session_id": session, "limit": 1000})


def _pages(session: str) -> bytes:
    """Pages, and in between a subscription from the beginning, which replaces the one before."""
    page = {"method": "session/events", "params": {"session_id": session, "limit": 1000}}
    replay = {"method": "session/subscribe", "params": {"session_id": session, "after_seq": 0}}
    frames = ({"id": id_, **(page if id_ % 8 else replay)} for id_ in range(BATCH))
    return b"".join(json.dumps(frame).encode() + b"\n" for frame in frames)


KINDS: dict[str, Callable[[str], bytes]] = {
    "never-read": _never_reader,
    "half-frame": lambda _session: b'{"id":1,"method":"ping","params":{"x":"' + b"y" * HALF_BYTES,
    "ping": lambda _session: _requests("ping", {}),
    "garbage": lambda _session: b"{nonsense}\n[]\n\xff\xfe\n" * (BATCH // 3),
    "pages": _pages,
}


class Offenders:
    """`count` connections of a kind. Floods read their answers as fast as they can; the others read nothing."""

    def __init__(self, kind: str, path: str, count: int, session: str) -> None:
        self._path = path
        self._batch = KINDS[kind](session)
        self._half = kind == "half-frame"
        self._deaf = kind == "never-read"
        self._selector = selectors.EpollSelector()
        self._sent: dict[socket.socket, int] = {}
        self._due: list[float] = [0.0] * count
        self.served = self.refused = self.bytes = 0

    def run(self) -> None:
        """Until stdin ends."""
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            self._connect()
            for key, ready in self._selector.select(RECONNECT_S / 4):
                if key.fileobj is sys.stdin:
                    return
                assert isinstance(key.fileobj, socket.socket)
                self._tend(key.fileobj, ready)

    def _connect(self) -> None:
        now = time.monotonic()
        due, self._due = self._due, [at for at in self._due if at > now]
        for _ in range(len(due) - len(self._due)):
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(self._path)
            except OSError:
                sock.close()
                self._due.append(now + RECONNECT_S)
                continue
            sock.setblocking(False)
            self._sent[sock] = 0
            self._selector.register(sock, selectors.EVENT_WRITE if self._deaf else self._both())

    @staticmethod
    def _both() -> int:
        return selectors.EVENT_READ | selectors.EVENT_WRITE

    def _tend(self, sock: socket.socket, ready: int) -> None:
        try:
            if ready & selectors.EVENT_READ:
                self._read(sock)
            if ready & selectors.EVENT_WRITE:
                self._write(sock)
        except BlockingIOError:
            pass
        except OSError:
            self._selector.unregister(sock)
            self._sent.pop(sock)
            sock.close()
            self._due.append(time.monotonic() + RECONNECT_S * random.uniform(0.5, 1.5))

    def _read(self, sock: socket.socket) -> None:
        data = sock.recv(1 << 18)
        if not data:
            raise ConnectionResetError
        self.served += data.count(b"\n")
        self.bytes += len(data)
        self.refused += data.count(b'"overloaded"')

    def _write(self, sock: socket.socket) -> None:
        at = self._sent[sock]
        if at == len(self._batch) and self._half:
            self._selector.modify(sock, selectors.EVENT_READ)  # half a frame, and no more of it
            return
        self._sent[sock] = at % len(self._batch)
        self._sent[sock] += sock.send(self._batch[self._sent[sock] : self._sent[sock] + 65536])


def main() -> None:
    kind, path, count, session = sys.argv[1:]
    os.nice(NICENESS)
    offenders = Offenders(kind, path, int(count), session)
    began = time.monotonic()
    offenders.run()
    seconds = time.monotonic() - began
    result = {"served": offenders.served, "refused": offenders.refused, "bytes": offenders.bytes, "seconds": seconds}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
