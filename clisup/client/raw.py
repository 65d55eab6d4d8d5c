"""Blocking connection to the daemon: requests out, JSON frames in, every wait bounded.

Parameters, results and events are dicts, as on the wire. This module needs the standard library alone and loads fast,
because `clisup status` uses it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from clisup import __version__
from clisup.client.failures import (
    cannot_connect,
    foreign,
    hung_up,
    lost,
    no_json,
    not_json,
    path_too_long,
    refuse_flood,
    too_large,
    too_slow,
)
from clisup.errors import ClisupError, error_from_wire
from clisup.locations import SOCKET_PATH_LIMIT, box_of, is_named, socket_for_client

if TYPE_CHECKING:
    from clisup.fleet.link import SshLink

__all__ = [
    "BOX_ANSWER_S",
    "PAGE",
    "Frame",
    "JsonObject",
    "LineBuffer",
    "RawClient",
    "decode",
    "encode_request",
    "event_of",
    "result_of",
    "says_goodbye",
    "stored",
]

CONNECT_TIMEOUT_S, SEND_TIMEOUT_S, ANSWER_TIMEOUT_S = 5.0, 30.0, 60.0
BOX_ANSWER_S = 10.0
"""Seconds in which a box has to introduce itself: ssh connects, and the command there starts."""

QUIET_S = 30.0
"""Seconds of silence after which a client asks whether the daemon lives."""

LINE_LIMIT = 512 * 1024 * 1024
"""Bytes of one line. The longest page of events is shorter."""

NOTIFICATION_LIMIT = 100_000
"""Events kept while a call on the same connection awaits its answer."""

_LONG = (
    "session/prompt",
    "session/compact",
    "session/interrupt",
    "session/close",
    "daemon/shutdown",
    "daemon/gc",
    "notify/test",
    "session/diff",
    "session/land",
    "session/discard",
)
_PROTOCOL_VERSION = 1
_CHUNK = 256 * 1024
_UCRED = 12  # bytes: pid, uid, gid (unix(7))

JsonObject = dict[str, Any]
"""JSON object as the daemon sent it. Its fields may be more than this version knows. The same as in
`clisup.model.structs`, which takes long to load."""

Frame = JsonObject
"""One frame of JSON-RPC, or its params."""


def decode(line: bytes) -> Frame:
    """Decode one line of the daemon. Raise `ValueError` unless the line is one JSON object."""
    try:
        value = json.loads(line.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def encode_request(id_: int, method: str, params: Mapping[str, Any]) -> bytes:
    """Encode the line of a request.

    Raise `UsageError` for params that are no strict JSON: the daemon would end the connection, and with it other calls.
    """
    frame = {"jsonrpc": "2.0", "id": id_, "method": method, **({"params": params} if params else {})}
    try:
        text = json.dumps(frame, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        if "\\ud" in text:
            json.dumps(json.loads(text), ensure_ascii=False).encode()  # half of a surrogate pair fails here
    except (TypeError, ValueError, RecursionError) as error:
        raise no_json(method, error) from None
    return text.encode("ascii") + b"\n"


def initialize_params(name: str) -> Frame:
    """Return the params with which the client `name` introduces itself."""
    return {"protocol_version": _PROTOCOL_VERSION, "client": {"name": name, "version": __version__}}


def answer_limit(path: str) -> float:
    """Return the seconds in which the daemon has to introduce itself."""
    return BOX_ANSWER_S if box_of(path) else ANSWER_TIMEOUT_S


def check_path(path: str) -> None:
    """Raise `UsageError(configuration)` for a path that no Unix socket can have."""
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise path_too_long(path)


def check_server(path: str, sock: Any) -> None:
    """Refuse a server of another user before anything is sent. `sock` is a connected socket.

    The server may belong to this user or to root, because systemd listens for a system unit. Root may use another user's
    daemon if the socket was named on purpose. Raise `WorldError(permission_denied)` otherwise.
    """
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED)
    uid, own = int.from_bytes(peer[4:8], sys.byteorder), os.geteuid()
    if uid in (own, 0) or (own == 0 and is_named(path, os.environ, os.getuid())):
        return
    raise foreign(path, uid)


def check_size(line: bytes, server: Frame) -> None:
    """Raise `UsageError(invalid_request)` for a line that is longer than the daemon accepts, by its answer to `initialize`."""
    limit = server.get("limits", {}).get("max_frame_bytes")
    if limit is not None and len(line) - 1 > limit:
        raise too_large(limit)


def result_of(frame: Frame) -> Any:
    """Return the result of an answer. Raise the error that the daemon answered with."""
    if "error" in frame:
        raise error_from_wire(frame["error"])
    return frame.get("result")


def says_goodbye(frame: Frame) -> bool:
    """Tell whether the frame is the error with which the daemon ends the connection: an error that answers no request."""
    return "error" in frame and frame.get("id") is None


def event_of(frame: Frame, session_id: str) -> Frame | None:
    """Return the event or the gap in a frame. Return None for other frames and for other sessions, unless `session_id` is `"*"`."""
    if says_goodbye(frame):
        raise error_from_wire(frame["error"])
    params: Frame = frame.get("params", {})
    if session_id not in ("*", params.get("session_id")):
        return None
    match frame.get("method"):
        case "session/event":
            return params
        case "session/gap":
            return {"type": "gap", **params}
    return None


class LineBuffer:
    """Bytes of one connection, cut into lines. Both clients read through this class."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def feed(self, data: bytes) -> None:
        """Add received bytes. Raise `WorldError` once a line is longer than `LINE_LIMIT`."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._lines.append(b"".join([*self._parts, line]))
            self._parts.clear()
            self._held = 0
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            if self._held > LINE_LIMIT:
                refuse_flood(self._path, LINE_LIMIT)

    def pop(self) -> bytes:
        """Return the next line without its end."""
        return self._lines.popleft()

    def pop_frame(self) -> Frame:
        """Return the next line as a frame. Raise `WorldError` for a line that is no frame."""
        try:
            return decode(self.pop())
        except ValueError:
            raise not_json(self._path) from None


class RawClient:
    """One connection, for one thread at a time. Raises `ClisupError` for every failure.

    `lost` tells that the daemon went away. `server` is the daemon's answer to `initialize`. A call awaits its answer for
    `ANSWER_TIMEOUT_S`. Waits for events and for the end of a turn have no limit, but after `QUIET_S` of silence the daemon
    must answer a ping.
    """

    def __init__(self, path: str, name: str) -> None:
        self.path, self._name = path, name
        self.lost = False
        self.server: Frame = {}
        self._socket: socket.socket | None = None
        self._link: SshLink | None = None
        self._lines = LineBuffer(path)
        self._notifications: deque[Frame] = deque()
        self._last_id = 0
        self._closed = False

    @classmethod
    def connect(cls, path: str | None = None, *, name: str = "clisup-client") -> Self:
        """Connect and introduce this client as `name`. `path` defaults to the socket that `clisup.locations` finds.

        Raises `ClisupError` of kind `daemon_not_running`, `permission_denied`, `configuration` or `overloaded`.
        """
        client = cls(path or socket_for_client(os.environ, os.getuid()), name)
        client._connect()
        return client

    def call(self, method: str, /, **params: Any) -> Any:
        """Send a request and return its result. Raises the daemon's refusal, by `kind`."""
        return self._answer(self.post(method, **params), method)

    def post(self, method: str, /, **params: Any) -> int:
        """Send a request without waiting for the answer, which is dropped later. Return the request's id."""
        if self._closed:
            raise hung_up(method, "it was closed")
        self._last_id += 1
        self.send(encode_request(self._last_id, method, params))
        return self._last_id

    def subscribe(
        self, session_id: str, after_seq: int | Mapping[str, int] | None = None, **options: Any
    ) -> Iterator[Frame]:
        """Subscribe now, and iterate over the events of a session, or of all sessions (`"*"`).

        The iterator ends with this connection; `clisup.client.sync.Client.follow` returns one that reconnects. `options`
        are those of `session/subscribe`. Missing history is reported by a dict of type `gap`, which has no `seq`.
        """
        cursor = {} if after_seq is None else {"after_seq": after_seq}
        self.call("session/subscribe", session_id=session_id, **cursor, **options)
        return iter(lambda: self.next_event(session_id), None)

    @property
    def at_hand(self) -> bool:
        """Tell whether a received frame was not read yet."""
        return bool(self._notifications or self._lines)

    def next_event(self, session_id: str) -> Frame:
        """Wait for the next event of a subscribed session, or of any session for `"*"`."""
        while (event := event_of(self._notification(), session_id)) is None:
            pass
        return event

    def notifications(self) -> Iterator[Frame]:
        """Iterate over the `{method, params}` frames that the daemon sends without being asked. Raises `ConnectionLost`."""
        while True:
            yield self._notification()

    def close(self) -> None:
        """Close the connection. Running turns go on."""
        self._closed = True
        self._hang_up()

    def interrupt_reading(self) -> None:
        """End the connection while another thread reads: that thread gets `ConnectionLost`."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the connection has ended already

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- the connection

    def _connect(self) -> None:
        self.lost = True  # until the daemon has answered
        self.dial()
        try:
            self.send(encode_request(1, "initialize", initialize_params(self._name)))
            self.server = self._answer(1, "initialize", answer_limit(self.path))
            if not isinstance(self.server, dict):
                raise not_json(self.path)
        except ClisupError as error:
            failure = error if self._link is None else self._link.failed(error)
            self._hang_up()
            raise failure from None
        except BaseException:
            if self._link is not None:
                self._link.end()
            self._hang_up()
            raise
        self._last_id, self.lost = 1, False

    def dial(self) -> None:
        """Connect, and check who serves. Nothing is sent."""
        self._hang_up()
        self._lines, self.server = LineBuffer(self.path), {}
        box, target = box_of(self.path), self.path
        if box:
            from clisup.fleet.link import way_to

            target, self._link = way_to(box)
            if self._link is not None:
                self._socket = self._link.socket
                return
        check_path(target)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(CONNECT_TIMEOUT_S)
            self._socket.connect(target)
            check_server(target, self._socket)
        except OSError as error:
            self._hang_up()
            raise cannot_connect(target, error, box) from None
        except BaseException:
            self._hang_up()
            raise

    def take_socket(self) -> socket.socket:
        """Return the dialled socket, which blocks without limit. This client does not use it any longer."""
        assert self._socket is not None
        sock, self._socket = self._socket, None
        sock.settimeout(None)
        return sock

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._link is not None:
            self._link.close()
            self._link = None

    def send(self, line: bytes) -> None:
        """Send the whole line. Raise the daemon's last words if the daemon has ended the connection."""
        assert self._socket is not None
        check_size(line, self.server)
        try:
            self._socket.settimeout(SEND_TIMEOUT_S)
            self._socket.sendall(line)
        except TimeoutError:
            raise self._lost("it does not take what is sent") from None
        except OSError as error:
            raise self._last_words() or self._lost(error.strerror or "it closed the connection") from None
        except BaseException:  # Ctrl-C: the daemon would read the next line as the end of this half
            self.lost = True
            raise

    def read_line(self, timeout: float) -> bytes:
        """Return the next line. `timeout` counts from the last received byte. Raise `TimeoutError` after it."""
        self._fill(timeout)
        return self._lines.pop()

    def _receive(self, timeout: float) -> Frame:
        self._fill(timeout)
        return self._lines.pop_frame()

    def _fill(self, timeout: float) -> None:
        """Wait until a whole line was received."""
        assert self._socket is not None
        self._socket.settimeout(timeout)
        while not self._lines:
            try:
                data = self._socket.recv(_CHUNK)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._lost(error.strerror or "reading failed") from None
            if not data:
                raise self._lost("it closed the connection")
            self._lines.feed(data)

    def _last_words(self) -> ClisupError | None:
        """Return the error with which the daemon ended the connection, from what was received before."""
        assert self._socket is not None
        self.lost = True
        try:
            self._socket.settimeout(0)
            while data := self._socket.recv(_CHUNK):
                self._lines.feed(data)
        except OSError:
            pass  # nothing else was received
        while self._lines:
            if says_goodbye(frame := self._lines.pop_frame()):
                return error_from_wire(frame["error"])
        return None

    def _lost(self, reason: str) -> ClisupError:
        self.lost = True
        return lost(self.path, reason if self._link is None else self._link.reason(reason))

    # -- frames

    def _answer(self, id_: int, method: str, seconds: float = ANSWER_TIMEOUT_S) -> Any:
        until = monotonic() + seconds
        while True:
            frame = self._frame() if method in _LONG else self._frame_until(until, method, seconds)
            if "method" in frame:
                self._keep(frame)
            elif frame.get("id") == id_ or says_goodbye(frame):
                return result_of(frame)

    def _keep(self, frame: Frame) -> None:
        if len(self._notifications) >= NOTIFICATION_LIMIT:
            raise lost(self.path, "events came faster than they were taken; subscribe on a connection of its own")
        self._notifications.append(frame)

    def _notification(self) -> Frame:
        if self._notifications:
            return self._notifications.popleft()
        while True:
            frame = self._frame()
            if "method" in frame:
                return frame
            if says_goodbye(frame):
                result_of(frame)

    def _frame_until(self, until: float, method: str, seconds: float = ANSWER_TIMEOUT_S) -> Frame:
        try:
            return self._receive(max(until - monotonic(), 0.001))
        except TimeoutError:
            raise too_slow(self.path, method, seconds) from None

    def _frame(self) -> Frame:
        """Return the next frame. Silence is no failure while the daemon answers pings."""
        try:
            return self._receive(QUIET_S)
        except TimeoutError:
            self._last_id += 1
            self.send(encode_request(self._last_id, "ping", {}))
            return self._frame_until(monotonic() + ANSWER_TIMEOUT_S, "ping")


# -- stored events ------------------------------------------------------------------------------------------------------

PAGE = 500
"""Stored events that one request fetches."""


def stored(
    client: RawClient, session_id: str, *, after: int = 0, page_size: int = PAGE, **options: object
) -> Iterator[JsonObject]:
    """Yield the stored events of a session after a seq. Dicts of type `gap` report missing events.

    `options` are the `types` and `raw` of `session/events`.
    """
    while True:
        page = client.call("session/events", session_id=session_id, after_seq=after, limit=page_size, **options)
        yield from _with_gaps(session_id, page)
        if page["eof"] or page["next_seq"] - 1 <= after:
            return
        after = page["next_seq"] - 1


def _with_gaps(session_id: str, page: JsonObject) -> list[JsonObject]:
    gaps = [{"type": "gap", "session_id": session_id, **gap} for gap in page.get("gaps") or ()]
    return sorted([*gaps, *page["events"]], key=lambda event: int(event.get("seq") or event["from_seq"]))
