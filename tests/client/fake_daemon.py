"""A daemon for tests of clients: a thread that speaks JSON-RPC on a Unix socket, with the events of its sessions in a list."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clisup.errors import ClisupError, UsageError

SESSION = "3f2a0000-0000-4000-8000-000000000001"
OTHER = "77770000-0000-4000-8000-000000000002"
SILENCE = object()
Handler = Callable[["Peer", dict[str, Any]], Any]


class Peer:
    """One client's connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self.following: set[str] = set()
        self.name: str | None = None
        self.asked = 0  # the id of the last request

    def send(self, frame: dict[str, Any] | bytes) -> None:
        line = frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n"
        with self._lock:
            try:
                self._sock.sendall(line)
            except OSError:
                pass

    def event(self, event: dict[str, Any]) -> None:
        self.send({"jsonrpc": "2.0", "method": "session/event", "params": event})

    def hang_up(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class FakeDaemon:
    """`handlers` may be replaced or added to; `requests` holds (method, params) in the order of arrival."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.events: list[dict[str, Any]] = []
        self.cursors: dict[str, dict[str, int]] = {}
        self._seqs: dict[str, int] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.peers: list[Peer] = []
        self.lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": lambda peer, params: {"time": "2026-01-01T00:00:00Z"},
            "session/subscribe": self._subscribe,
            "session/ack": self._ack,
            "session/events": self._events,
            "session/get": lambda peer, params: self.summary() | {"timers": [], "last_events": self.events[-3:]},
            "session/list": self._list,
            "session/new": lambda peer, params: {"session_id": params.get("session_id", SESSION)},
        }
        self.start()

    def start(self) -> None:
        """Listen (again)."""
        Path(self.path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(16)
        self._spawn(self._accept, self._listener)

    def stop(self) -> None:
        """Hang up on everybody; the socket file stays, as after a crash."""
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self.lock:
            for peer in self.peers:
                peer.hang_up()
            self.peers.clear()

    def close(self) -> None:
        """Stop, and wait for every thread."""
        try:
            self.stop()
        except OSError:
            pass  # stopped by the test
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def emit(self, type_: str, turn_id: str | None = "t1", *, session: str = SESSION, **fields: Any) -> None:
        """Add an event, and send it to whoever follows."""
        with self.lock:
            event = {
                "session_id": session, "seq": self.last_seq(session) + 1, "ts": "2026-01-01T10:00:00.000000Z", "turn_id": turn_id,
                "source": "backend", "type": type_, **fields,
            }  # fmt: skip
            self.events.append(event)
            self._seqs[session] = event["seq"]
            for peer in self.peers:
                if not peer.following.isdisjoint(("*", session)):
                    peer.event(event)

    @property
    def connections(self) -> int:
        """How many stand now: a thread for each, and one that listens."""
        return sum(thread.is_alive() for thread in self._threads) - 1

    def of(self, session: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["session_id"] == session]

    def last_seq(self, session: str) -> int:
        return self._seqs.get(session, 0)

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.requests if name == method]

    def summary(self, **changed: Any) -> dict[str, Any]:
        return {
            "session_id": SESSION, "backend": "demo", "model": "demo-1", "state": "running", "phase": "tool", "turn_id": "t3",
            "native_session_id": None, "cwd": "/srv/app", "labels": {"ticket": "4711"}, "created_at": "2026-01-01T00:00:00Z",
            "pid": 4242, "idle_s": 8.2, "age_s": 3725.0, "turns": 3, "queue": [{"turn_id": "t4"}],
            "tokens": {"input_tokens": 1000, "output_tokens": 500}, "cost_usd": 0.0123, "subscribers": 1, "first_seq": 1,
            "next_seq": self.last_seq(SESSION) + 1, "last_event": None,
            "next_timer": {"phase": "tool", "limit_s": 1800.0, "fires_in_s": 1791.0},
        } | changed  # fmt: skip

    def _initialize(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        peer.name = params.get("client", {}).get("name")
        return {
            "protocol_version": 1,
            "server": {"pid": 123, "instance_id": "one", "version": "0.1.0"},
            "limits": {},
            "backends": ["demo"],
        }

    def _list(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        return {"sessions": [] if params.get("state") == "closed" else [self.summary()], "next_cursor": None}

    def _subscribe(self, peer: Peer, params: dict[str, Any]) -> Any:
        wanted, asked = params["session_id"], params.get("after_seq")
        stored = self.cursors.setdefault(params["name"], {}) if "name" in params else {}
        begin = {}
        for id_ in self._seqs if wanted == "*" else [wanted]:
            default = self.last_seq(id_) if asked is None else asked.get(id_, 0) if isinstance(asked, dict) else asked
            begin[id_] = stored.setdefault(id_, default) if "name" in params else default
        peer.following.add(wanted)
        answer = {"cursors": begin} if wanted == "*" else {"next_seq": self.last_seq(wanted) + 1, "first_seq": 1,
                                                           "after_seq": begin[wanted]}  # fmt: skip
        peer.send({"jsonrpc": "2.0", "id": peer.asked, "result": answer})
        for event in self.events:
            if event["session_id"] in begin and event["seq"] > begin[event["session_id"]]:
                peer.event(event)
        return SILENCE

    def _ack(self, peer: Peer, params: dict[str, Any]) -> Any:
        cursor = self.cursors[params["name"]]
        cursor[params["session_id"]] = max(params["seq"], cursor.get(params["session_id"], 0))
        return {"seq": cursor[params["session_id"]]}

    def _events(self, peer: Peer, params: dict[str, Any]) -> Any:
        events = self.of(params["session_id"])
        page = events[params["after_seq"] :][: params["limit"]]
        at = params["after_seq"] + len(page)
        return {"events": page, "next_seq": at + 1, "eof": at >= len(events)}

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        peer = Peer(sock)
        with self.lock:
            self.peers.append(peer)
        with sock, sock.makefile("rb") as lines:
            try:
                for line in lines:
                    self._answer(peer, json.loads(line))
            except OSError:
                pass

    def _answer(self, peer: Peer, request: dict[str, Any]) -> None:
        method, params = request["method"], request.get("params", {})
        peer.asked = request["id"]
        self.requests.append((method, params))
        with self.lock:
            try:
                if method not in self.handlers:
                    raise UsageError(f"cannot call {method}", kind="method_not_found")
                result = self.handlers[method](peer, params)
            except ClisupError as error:
                peer.send({"jsonrpc": "2.0", "id": request["id"], "error": error.to_wire()})
                return
        if result is not SILENCE:
            peer.send({"jsonrpc": "2.0", "id": request["id"], "result": result})
