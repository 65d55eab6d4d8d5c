"""JSON-RPC 2.0 in lines, without I/O: bytes in, requests and refusals out.

The reader is strict. It refuses NaN, Infinity, lone surrogates, duplicate keys, UTF-16, a byte-order mark, boolean ids and
endless nesting with a typed error, and the connection goes on (fault 46). Only a frame over the size limit closes the
connection (fault 45).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from clisup.errors import ClisupError, UsageError
from clisup.model.lines.json_values import has_more_values, is_deeper
from clisup.model.structs import JsonObject

DEFAULT_MAX_FRAME = 16 * 1024 * 1024
DEFAULT_MAX_VALUES = 100_000
"""JSON values in one frame. Reading so many takes about ten milliseconds, and other clients wait meanwhile."""
JSONRPC_MEMBERS = {"jsonrpc", "id", "method", "params"}
_ANSWERS = [
    {*head, word} for head in ({"id"}, {"jsonrpc", "id"}) for word in ("result", "error")
]  # member sets of an answer: exactly one of the two words
_BLANKS = re.compile(rb"[ \t\r\n]*")
_ID_LIMIT = 256  # characters of a string id; the daemon keeps the id while the request runs
_ID_BITS = 64
_HEAD_BYTES = 4096
_DEEPEST = 200  # levels of nesting; pydantic cannot write more than 255


@dataclass(frozen=True, slots=True)
class Request:
    """Well-formed request; `id` is None for a notification."""

    method: str
    params: JsonObject = field(default_factory=dict)
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """Answer of the client to a request of the daemon: a result, or an error object."""

    id: str | int
    result: Any = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class FrameRefusal:
    """Refused frame: `answer` is the line to send back; `fatal` closes the connection after that line."""

    answer: bytes
    fatal: bool = False


class FrameReader:
    """Reader that cuts the bytes of a client into frames and parses one frame at a time.

    Call `feed` with received bytes, then `next` until it returns None, then receive again. The reader thus holds one frame and
    one receive at most, and a frame waits for its turn unparsed.
    """

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME, max_values: int = DEFAULT_MAX_VALUES) -> None:
        self._max = max_frame
        self._max_values = max_values
        self._data = bytearray()  # grows in place, without an object for each byte of a slow client
        self._seen = 0  # leading bytes without a newline
        self._end = -1  # end of the first frame, -1 if unknown

    @property
    def held(self) -> int:
        """Number of bytes not yet returned as a frame."""
        return len(self._data)

    @property
    def ready(self) -> bool:
        """True if `next` returns a frame or a refusal."""
        if self._end < 0:
            self._end = self._data.find(b"\n", self._seen)
            self._seen = len(self._data)
        return self._end >= 0 or len(self._data) > self._max

    def feed(self, data: bytes) -> None:
        """Append received bytes. Do not call this after a fatal refusal."""
        self._data += data
        self._skip_blanks()

    def next(self) -> Request | ClientAnswer | FrameRefusal | None:
        """Return the next frame, or None if its end has not arrived."""
        if not self.ready:
            return None
        if self._end > self._max or self._end < 0:
            return self._oversized()
        with memoryview(self._data) as view:
            line = bytes(view[: self._end])  # copied once
        del self._data[: self._end + 1]
        self._seen, self._end = 0, -1
        self._skip_blanks()
        return read_frame(line, self._max_values)

    def _skip_blanks(self) -> None:
        """Drop blanks before a frame, so that a receive full of newlines is one step and not 65,536."""
        if self._seen == 0 and (blanks := _BLANKS.match(self._data)) and (end := blanks.end()):
            del blanks  # the match holds the buffer, which otherwise cannot shrink
            del self._data[:end]

    def _oversized(self) -> FrameRefusal:
        self._data, self._seen, self._end = bytearray(), 0, -1
        error = UsageError(
            f"the frame has more than {self._max} bytes",
            kind="invalid_request",
            hint="send less, or raise daemon.max_frame_bytes",
            limit="max_frame_bytes",
            value=self._max,
        )
        return FrameRefusal(encode_error(None, error), fatal=True)


def read_frame(line: bytes, max_values: int = DEFAULT_MAX_VALUES) -> Request | ClientAnswer | FrameRefusal:
    """Parse one frame. Return a request, an answer of the client, or the refusal to send back."""
    if has_more_values(line, max_values):
        return _crowded(line, max_values)
    try:
        frame = _strict_json(line)
    except (RecursionError, ValueError) as error:
        reason = _json_reason(error)
        return _refuse(None, "parse_error", f"the frame is not valid JSON: {reason}")
    return _read_request(frame)


class _Head(msgspec.Struct):
    """Head of a frame. msgspec skips all other members without making objects."""

    id: str | int | None = None
    method: str | None = None


def _crowded(line: bytes, limit: int) -> ClientAnswer | FrameRefusal:
    """Refuse a frame with too many values. An answer of the client becomes an error answer to the daemon's request."""
    head = _head_of(line)
    id_ = head.id if _valid_id(head.id) else None
    error = UsageError(
        f"the frame has more than {limit} JSON values",
        kind="invalid_request",
        hint="send less, or as text; or raise daemon.max_frame_values",
        limit="max_frame_values",
        value=limit,
    )
    if id_ is not None and head.method is None:
        return ClientAnswer(id_, error=error.to_wire())
    return FrameRefusal(encode_error(id_, error))


def _head_of(line: bytes) -> _Head:
    """Return id and method, as far as they are readable. They mostly stand before the large part of a frame."""
    begin = line[:_HEAD_BYTES]
    with suppress(ValueError):
        head = msgspec.json.decode(begin[: begin.index(b'"params"')].rstrip(b", ") + b"}", type=_Head)
        if head.method is not None:
            return head
    try:
        return msgspec.json.decode(line, type=_Head)
    except (ValueError, RecursionError):
        return _Head()


def _read_request(frame: Any) -> Request | ClientAnswer | FrameRefusal:
    if isinstance(frame, list):
        return _refuse(None, "invalid_request", "batches are not supported: send each request on a line of its own")
    if not isinstance(frame, dict):
        return _refuse(None, "invalid_request", "the frame is no JSON object")
    id_ = frame.get("id")
    if "id" in frame and not _valid_id(id_):
        reason = f"an id is a string of up to {_ID_LIMIT} characters or an integer of {_ID_BITS} bits"
        return _refuse(None, "invalid_request", f"invalid id: {reason}")
    if id_ is not None and frame.get("jsonrpc", "2.0") == "2.0" and set(frame) in _ANSWERS:
        return ClientAnswer(id_, frame.get("result"), frame.get("error"))
    if frame.get("jsonrpc", "2.0") != "2.0" or not isinstance(frame.get("method"), str):
        return _refuse(id_, "invalid_request", 'invalid frame: a request needs "jsonrpc": "2.0" and a "method" string')
    if extra := sorted(set(frame) - JSONRPC_MEMBERS):
        return _refuse(id_, "invalid_request", f"invalid frame: unknown member {extra[0][:64]!r}")
    params = frame.get("params", {})
    if not isinstance(params, dict):
        return _refuse(id_, "invalid_params", "params must be a JSON object")
    return Request(frame["method"], params, id_)


def _valid_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _ID_LIMIT
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _ID_BITS


def _refuse(id_: Any, kind: str, message: str) -> FrameRefusal:
    return FrameRefusal(encode_error(id_, UsageError(message, kind=kind, hint="see docs/reference/protocol.md")))


def _strict_json(line: bytes) -> Any:
    text = line.decode("utf-8")
    if text.startswith("\ufeff"):
        raise _NotStrict("byte-order mark at the start")
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    if is_deeper(value, line, _DEEPEST):
        raise _NotStrict("nested too deeply")
    if b"\\" in line and (b"\\ud" in line or b"\\uD" in line):
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # raises for a lone surrogate
    return value


class _NotStrict(ValueError):
    """JSON that only a lax reader accepts. The message quotes nothing from the client."""


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _NotStrict("duplicate key in an object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("a number is too large")  # Python reads 1e400 as Infinity
    return number


def _json_reason(error: Exception) -> str:
    """Return the reason without quoting the client's text, which may hold a secret."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "lone surrogate in a string"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return str(error) if isinstance(error, _NotStrict) else "a number is too long"


def encode_result(id_: str | int, result: bytes) -> bytes:
    """Return the line of an answer. `result` is JSON."""
    return b'{"jsonrpc":"2.0","id":' + json.dumps(id_).encode() + b',"result":' + result + b"}\n"


def encode_error(id_: str | int | None, error: ClisupError) -> bytes:
    """Return the line of an error."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error.to_wire()}, separators=(",", ":")).encode() + b"\n"


def encode_request(id_: str, method: str, params: bytes) -> bytes:
    """Return the line of a request to the client. `params` is JSON."""
    head = b'{"jsonrpc":"2.0","id":' + json.dumps(id_).encode() + b',"method":"' + method.encode() + b'","params":'
    return head + params + b"}\n"


def encode_notifications(method: str, params: Sequence[bytes]) -> bytes:
    """Return the lines of several notifications of one method. `params` are JSON."""
    head = b'{"jsonrpc":"2.0","method":"' + method.encode() + b'","params":'
    return b"".join((head, (b"}\n" + head).join(params), b"}\n")) if params else b""


def encode_notification(method: str, params: bytes) -> bytes:
    """Return the line of a notification. `params` is JSON: for an event, the bytes in the journal."""
    return encode_notifications(method, (params,))
