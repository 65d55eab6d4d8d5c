"""One connection to the daemon: requests out, JSON lines in, every wait bounded.

`clisup status` stands on this file, and may cost little more than `python -c pass`. So it takes the C modules beneath
`socket` and `json`: the former is 5 ms of enum classes, the latter 3 ms of regular expressions, of 8 ms for all of Python.
Nothing else here may import `typing`, `re` or `enum` at the top; `clisup.client.failures` is loaded when something fails.
"""

from __future__ import annotations

import _json
import _socket
import os
import sys
from collections import deque

from clisup.locations import SOCKET_PATH_LIMIT, is_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "CONNECT_TIMEOUT_S",
    "LINE_LIMIT",
    "SEND_TIMEOUT_S",
    "Connection",
    "check_server",
    "decode",
    "encode_request",
    "write_json",
]

CONNECT_TIMEOUT_S = 5.0
SEND_TIMEOUT_S = 30.0
LINE_LIMIT = 512 * 1024 * 1024
"""One page of the longest events; more in one line is no daemon of ours."""

_CHUNK = 256 * 1024
_UCRED = 12  # bytes: pid, uid, gid (unix(7))


class _Reading:
    """What the scanner asks of its context: plain JSON."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def _refuse(value: object) -> object:
    raise TypeError(f"no JSON: {type(value).__name__}")


_write: Callable[[object, int], tuple[str, ...]] = _json.make_encoder(
    None, _refuse, _json.encode_basestring, None, ": ", ", ", False, False, True
)
_scan: Callable[[str, int], tuple[Any, int]] = _json.make_scanner(_Reading)  # type: ignore[arg-type]


def decode(line: bytes) -> dict[str, Any]:
    """A line of the daemon's as a frame. Raises `ValueError` for anything else."""
    text = line.decode("utf-8").strip()
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("not JSON") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text) or not isinstance(value, dict):
        raise ValueError("not one JSON object")
    return value


def write_json(value: object) -> str:
    """What the daemon sent, as JSON again, as `json.dumps(value, ensure_ascii=False)` writes it."""
    return "".join(_write(value, 0))


def encode_request(id_: int, method: str, params: dict[str, Any]) -> bytes:
    """A request's line. `json` is loaded only where there are params.

    Raises `UsageError` for what is no strict JSON: the daemon would hang up on it, and so on the other calls of the connection.
    """
    if not params:
        return b'{"jsonrpc":"2.0","id":%d,"method":"%s"}\n' % (id_, method.encode())
    import json

    frame = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    try:
        text = json.dumps(frame, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        if "\\ud" in text:
            json.dumps(json.loads(text), ensure_ascii=False).encode()  # half of a surrogate pair fails here
    except (TypeError, ValueError, RecursionError) as error:
        from clisup.client.failures import no_json

        raise no_json(method, error) from None
    return text.encode("ascii") + b"\n"


def check_server(path: str, sock: Any) -> None:
    """Refuse a server of another user, before anything is sent to it. `sock` is connected, and has `getsockopt`.

    The server may be this user or root: systemd listens for a unit of the system's. Root may talk to the daemon of a user whose
    socket was named on purpose, because that user could have put anything where root would look by itself.
    Raises `WorldError(permission_denied)`.
    """
    peer = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _UCRED)
    uid, own = int.from_bytes(peer[4:8], sys.byteorder), os.geteuid()
    if uid in (own, 0) or (own == 0 and is_named(path, os.environ, os.getuid())):
        return
    from clisup.client.failures import foreign

    raise foreign(path, uid)


class Connection:
    """A connected socket that gives lines. Raises `ClisupError` for what fails, `TimeoutError` where no byte came in time.

    `lost` says that the daemon went away; closing it ourselves is none of that. `limit` is what the daemon takes in one line,
    once it has said so.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lost = False
        self.limit: int | None = None
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            from clisup.client.failures import path_too_long

            raise path_too_long(path)
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_TIMEOUT_S)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            from clisup.client.failures import cannot_connect

            raise cannot_connect(path, error) from None
        try:
            check_server(path, self._socket)
        except BaseException:
            self._socket.close()
            raise

    def send(self, line: bytes) -> None:
        """Send all of it. Raises what the daemon has said last, where it hung up."""
        if self.limit is not None and len(line) - 1 > self.limit:
            from clisup.client.failures import too_large

            raise too_large(self.limit)
        try:
            self._socket.settimeout(SEND_TIMEOUT_S)
            self._socket.sendall(line)
        except TimeoutError:
            raise self._lost("it does not take what is sent") from None
        except OSError as error:
            raise self._refusal() or self._lost(error.strerror or "it closed the connection") from None
        except BaseException:  # Ctrl-C: half of the line may be there, and the next one would be read as its end
            self.lost = True
            raise

    @property
    def at_hand(self) -> bool:
        """Has a whole line come that was not read yet?"""
        return bool(self._lines)

    def read_line(self, timeout: float) -> bytes:
        """The next line without its end. `timeout` counts from the last byte that came."""
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
            self._take(data)
        return self._lines.popleft()

    def close(self) -> None:
        self._socket.close()

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._lines.append(b"".join([*self._parts, line]))
            self._parts.clear()
            self._held = 0
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            if self._held > LINE_LIMIT:
                from clisup.client.failures import refuse_flood

                refuse_flood(self.path, LINE_LIMIT)

    def _refusal(self) -> Exception | None:
        """What waits unread on a connection that takes no more: a daemon that hangs up says why before it does."""
        self.lost = True
        try:
            self._socket.settimeout(0)
            while data := self._socket.recv(_CHUNK):
                self._take(data)
        except OSError:
            pass  # that was all
        return _refusal_in(self._lines)

    def _lost(self, reason: str) -> Exception:
        self.lost = True
        from clisup.client.failures import lost

        return lost(self.path, reason)


def _refusal_in(lines: Iterable[bytes]) -> Exception | None:
    """Return the error in which the daemon says why it hung up: an error that answers no request. None if no line has one."""
    for line in lines:
        try:
            frame = decode(line)
        except ValueError:
            continue
        if "error" in frame and frame.get("id") is None:
            from clisup.errors import error_from_wire

            return error_from_wire(frame["error"])
    return None
