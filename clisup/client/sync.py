"""The blocking client, for scripts and for clisup's own commands.

    with Client.connect() as client, client.open("claude", "/srv/app") as session:
        for envelope in session.run("Say hello."):
            print(envelope.seq, envelope.event)

`call`, `prompt`, `follow` and `subscribe` give what is on the wire, as dicts, and need the standard library alone: `clisup
status` stands on them. The named methods (`clisup.client.calls`, `clisup.client.session`) give what is typed, and load
pydantic when they are called.

A client is one connection. Where a restart of the daemon ends it, the call that was under way raises `ConnectionLost`, unless
it may be asked twice, and the next call connects again. `follow`, `events` and `prompt` have connections of their own and come
back by themselves, so that nothing is lost or repeated.

An answer is waited for `ANSWER_TIMEOUT_S`; where waiting is the point (events, the end of a turn) the wait has no end of its
own, but after `QUIET_S` without a byte the daemon is asked whether it lives, and must answer.
"""

from __future__ import annotations

import os
from collections import deque
from time import monotonic

from clisup import __version__
from clisup.client.calls import Calls
from clisup.client.transport import Connection, decode, encode_request
from clisup.locations import socket_for_client

TYPE_CHECKING = False  # `typing` itself costs as much as all the rest of a light command
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Self

__all__ = ["ANSWER_TIMEOUT_S", "QUIET_S", "Client"]

ANSWER_TIMEOUT_S = 60.0
QUIET_S = 30.0
NOTIFICATION_LIMIT = 100_000
"""Events kept while the answer to a call is awaited on the same connection."""

_LONG = ("session/prompt", "session/compact", "session/interrupt", "session/close", "daemon/shutdown", "daemon/gc")
_PROTOCOL_VERSION = 1


class Client(Calls):
    """One connection. Not for several threads at once; open one client for each."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self._last_id = 0
        self._closed = False
        self._followers = []
        self._notifications: deque[dict[str, Any]] = deque()
        self.server: dict[str, Any] = {}

    @classmethod
    def connect(cls, path: str | None = None, *, name: str = "clisup-client") -> Client:
        """Connect and introduce oneself; `path` defaults to where `clisup.locations` finds the socket.

        Raises `ClisupError` of kind `daemon_not_running`, `permission_denied`, `configuration` or `overloaded`.
        """
        client = cls(Connection(path or socket_for_client(os.environ, os.getuid())), name)
        client._introduce()
        return client

    @property
    def path(self) -> str:
        """The socket's path."""
        return self._connection.path

    @property
    def lost(self) -> bool:
        """Has the daemon gone away? The next call would connect again."""
        return self._connection.lost

    def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and give its result; raises what the daemon refused it with, by `kind`."""
        return self._answer(self.post(method, **params), method)

    def post(self, method: str, /, **params: Any) -> int:
        """Send a request without waiting for its answer, which is dropped when it comes. Gives the request's id."""
        if self._closed:
            from clisup.client.failures import hung_up

            raise hung_up(method, "it was closed")
        if self._connection.lost:
            self._connect_again()
        self._last_id += 1
        self._connection.send(encode_request(self._last_id, method, params))
        return self._last_id

    def notifications(self) -> Iterator[dict[str, Any]]:
        """What the daemon sends by itself, as `{method, params}` frames, without end; `ConnectionLost` when it goes away."""
        while True:
            yield self._notification()

    def prompt(
        self,
        session_id: str,
        prompt: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        wait: bool = True,
        on_lost: Callable[[], None] | None = None,
        on_back: Callable[[], None] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Send a prompt and give the turn's result, also across restarts of the daemon; without `wait`, its acceptance.

        It has a connection of its own. When the daemon goes away it is asked again by the same `key` (made here where none is
        given), which never prompts twice. A result with `delivery: "uncertain"` says that nobody saw whether the CLI took the
        prompt, with the `evidence`: to send it once more, under another key, is the caller's decision.
        Raises what the daemon refuses it with, and `daemon_not_running` where it stays away for `RECONNECT_S`.
        """
        from clisup.client.coming_back import prompt_surely

        params = {"session_id": session_id, "prompt": prompt, "key": key, "wait": wait, **options}
        return prompt_surely(self.path, params, name=self._name, on_lost=on_lost, on_back=on_back)

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> Iterator[dict[str, Any]]:
        """Subscribe now, and iterate over the events of a session, or of all (`"*"`).

        On this connection only: see `follow` for one that comes back. `options` are those of `session/subscribe`: `types`,
        `deltas`, `raw`, `name`. History that is missing is told by one dict of type `gap`, the only one without a `seq`.
        """
        cursor = {} if after_seq is None else {"after_seq": after_seq}
        self.call("session/subscribe", session_id=session_id, **cursor, **options)
        return iter(lambda: self.next_event(session_id), None)

    @property
    def at_hand(self) -> bool:
        """Has something come that was not taken yet?"""
        return bool(self._notifications) or self._connection.at_hand

    def next_event(self, session_id: str) -> dict[str, Any]:
        """Wait for the next event of a subscribed session, of any for `"*"`."""
        while True:
            frame = self._notification()
            params: dict[str, Any] = frame.get("params", {})
            if session_id not in ("*", params.get("session_id")):
                continue
            if frame["method"] == "session/event":
                return params
            if frame["method"] == "session/gap":
                return {"type": "gap", **params}

    def close(self) -> None:
        """Hang up, and end what it follows. A turn goes on without its client."""
        for known in self._followers:
            if (follower := known()) is not None:
                follower.close()
        self._closed = True
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _introduce(self) -> None:
        """Say who this is, on a new connection, and hear who serves."""
        try:
            self._connection.send(_initialize_line(self._name))
            self._last_id = 1
            self.server = self._answer(1, "initialize")
            self._connection.limit = self.server.get("limits", {}).get("max_frame_bytes")
        except BaseException:
            self._connection.close()
            raise

    def _connect_again(self) -> None:
        from clisup.client.coming_back import again_until
        from clisup.client.failures import lost

        def connect() -> None:
            self._connection = Connection(self.path)
            self._introduce()

        self._connection.close()
        again_until(connect, lost(self.path))

    def _answer(self, id_: int, method: str) -> Any:
        until = monotonic() + ANSWER_TIMEOUT_S
        while True:
            frame = self._frame() if method in _LONG else self._frame_until(until, method)
            if "method" in frame:
                self._keep(frame)
            elif frame.get("id") == id_ or ("error" in frame and frame.get("id") is None):
                return _result(frame)

    def _keep(self, frame: dict[str, Any]) -> None:
        if len(self._notifications) >= NOTIFICATION_LIMIT:
            from clisup.client.failures import lost

            raise lost(self.path, "events came faster than they were taken; subscribe on a connection of its own")
        self._notifications.append(frame)

    def _notification(self) -> dict[str, Any]:
        if self._notifications:
            return self._notifications.popleft()
        while True:
            frame = self._frame()
            if "method" in frame:
                return frame
            if "error" in frame and frame.get("id") is None:
                _result(frame)  # the daemon says why it hangs up

    def _frame_until(self, until: float, method: str) -> dict[str, Any]:
        try:
            return self._decoded(self._connection.read_line(max(until - monotonic(), 0.001)))
        except TimeoutError:
            from clisup.client.failures import too_slow

            raise too_slow(self.path, method, ANSWER_TIMEOUT_S) from None

    def _frame(self) -> dict[str, Any]:
        """The next frame. Silence is allowed as long as the daemon answers a ping."""
        try:
            return self._decoded(self._connection.read_line(QUIET_S))
        except TimeoutError:
            self.post("ping")
            return self._frame_until(monotonic() + ANSWER_TIMEOUT_S, "ping")

    def _decoded(self, line: bytes) -> dict[str, Any]:
        try:
            return decode(line)
        except ValueError:
            from clisup.client.failures import not_json

            raise not_json(self.path) from None


def _initialize_line(name: str) -> bytes:
    """Written by hand, as it is sent by commands that never load `json`; names hold nothing that JSON escapes."""
    if not name.isprintable() or not name.isascii() or '"' in name or "\\" in name:
        raise ValueError(f"a client's name is printable ASCII without quotes, not {name!r}")
    client = b'{"name":"%s","version":"%s"}' % (name.encode(), __version__.encode())
    params = b'{"protocol_version":%d,"client":%s}' % (_PROTOCOL_VERSION, client)
    return b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + params + b"}\n"


def _result(frame: dict[str, Any]) -> Any:
    if "error" in frame:
        from clisup.errors import error_from_wire

        raise error_from_wire(frame["error"])
    return frame.get("result")
