"""JSON-RPC 2.0 over lines, sans I/O: bytes in, requests or answers to refusals out.

Strict where a lax reader lets trouble in: NaN, Infinity, lone surrogates, duplicate keys, UTF-16, a byte-order mark, boolean
ids and nesting without end are refused with a typed error, and the connection goes on (fault 46). Only a frame over the limit
ends it (fault 45).
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

__all__ = [
    "DEFAULT_MAX_FRAME",
    "DEFAULT_MAX_VALUES",
    "Answer",
    "FrameReader",
    "Refusal",
    "Request",
    "encode_error",
    "encode_notification",
    "encode_notifications",
    "encode_request",
    "encode_result",
]

DEFAULT_MAX_FRAME = 16 * 1024 * 1024
DEFAULT_MAX_VALUES = 100_000
"""Of JSON in one frame: to read so many takes some ten milliseconds, in which nobody else is served."""
JSONRPC_MEMBERS = {"jsonrpc", "id", "method", "params"}
_ANSWERS = [
    {*head, word} for head in ({"id"}, {"jsonrpc", "id"}) for word in ("result", "error")
]  # its members: one of the two, and nothing else
_BLANKS = re.compile(rb"[ \t\r\n]*")
_ID_LIMIT = 256  # characters of a string id: it is held for as long as the request runs
_ID_BITS = 64
_HEAD_BYTES = 4096
_DEEPEST = 200  # levels of a frame: what comes in deeper could not be written again (pydantic: 255)


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed request; `id` is None for a notification."""

    method: str
    params: dict[str, Any] = field(default_factory=dict)
    id: str | int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client says to a request of ours: a result, or an error object."""

    id: str | int
    result: Any = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """What could not be taken: `answer` is the line to send back; `fatal` closes the connection after it."""

    answer: bytes
    fatal: bool = False


class FrameReader:
    """Cuts the client's bytes into frames and reads them one by one, so that each can wait for its turn unread.

    `feed` what came, take with `next` until it gives None, then read on: so it holds one frame and one read at most.
    """

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME, max_values: int = DEFAULT_MAX_VALUES) -> None:
        self._max = max_frame
        self._max_values = max_values
        self._data = bytearray()  # grows in place: a client that drips bytes costs no object for each of them
        self._seen = 0  # bytes of it that hold no newline
        self._end = -1  # where the first frame ends, -1: not known

    @property
    def held(self) -> int:
        """Bytes that are not taken yet."""
        return len(self._data)

    @property
    def ready(self) -> bool:
        """`next` has something to give."""
        if self._end < 0:
            self._end = self._data.find(b"\n", self._seen)
            self._seen = len(self._data)
        return self._end >= 0 or len(self._data) > self._max

    def feed(self, data: bytes) -> None:
        """Take bytes. After a fatal refusal nothing more may be fed."""
        self._data += data
        self._skip_blanks()

    def next(self) -> Request | Answer | Refusal | None:
        """The next frame; None where its end has not come."""
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
        """Before a frame they are nothing; a read full of newlines is no work for 65,536 turns."""
        if self._seen == 0 and (blanks := _BLANKS.match(self._data)) and (end := blanks.end()):
            del blanks  # it holds the buffer, which could not shrink
            del self._data[:end]

    def _oversized(self) -> Refusal:
        self._data, self._seen, self._end = bytearray(), 0, -1
        error = UsageError(
            f"cannot read a frame of more than {self._max} bytes",
            kind="invalid_request",
            hint="send less, or raise daemon.max_frame_bytes",
            limit="max_frame_bytes",
            value=self._max,
        )
        return Refusal(encode_error(None, error), fatal=True)


def read_frame(line: bytes, max_values: int = DEFAULT_MAX_VALUES) -> Request | Answer | Refusal:
    """One frame to a request, to an answer of the client's, or to the refusal that answers it."""
    if has_more_values(line, max_values):
        return _crowded(line, max_values)
    try:
        frame = _strict_json(line)
    except (RecursionError, ValueError) as error:
        reason = _json_reason(error)
        return _refuse(None, "parse_error", f"cannot read the frame as JSON, because {reason}")
    return _read_request(frame)


class _Head(msgspec.Struct):
    """What a frame is about. Reading it makes nothing of the rest."""

    id: str | int | None = None
    method: str | None = None


def _crowded(line: bytes, limit: int) -> Answer | Refusal:
    """Who sent it learns so by its id. What was asked of the client has its answer, which is that it cannot be read."""
    head = _head_of(line)
    id_ = head.id if _valid_id(head.id) else None
    error = UsageError(
        f"cannot read a frame of more than {limit} values",
        kind="invalid_request",
        hint="send less, or as text; or raise daemon.max_frame_values",
        limit="max_frame_values",
        value=limit,
    )
    if id_ is not None and head.method is None:
        return Answer(id_, error=error.to_wire())
    return Refusal(encode_error(id_, error))


def _head_of(line: bytes) -> _Head:
    """As far as it can be told. It mostly stands before what is large: then that is not even looked at."""
    begin = line[:_HEAD_BYTES]
    with suppress(ValueError):
        head = msgspec.json.decode(begin[: begin.index(b'"params"')].rstrip(b", ") + b"}", type=_Head)
        if head.method is not None:
            return head
    try:
        return msgspec.json.decode(line, type=_Head)
    except (ValueError, RecursionError):
        return _Head()


def _read_request(frame: Any) -> Request | Answer | Refusal:
    if isinstance(frame, list):
        return _refuse(None, "invalid_request", "cannot take a batch: send each request on a line of its own")
    if not isinstance(frame, dict):
        return _refuse(None, "invalid_request", "cannot take this frame: a request is a JSON object")
    id_ = frame.get("id")
    if "id" in frame and not _valid_id(id_):
        reason = f"it must be a string of up to {_ID_LIMIT} characters or an integer of {_ID_BITS} bits"
        return _refuse(None, "invalid_request", f"cannot take this id: {reason}")
    if id_ is not None and frame.get("jsonrpc", "2.0") == "2.0" and set(frame) in _ANSWERS:
        return Answer(id_, frame.get("result"), frame.get("error"))
    if frame.get("jsonrpc", "2.0") != "2.0" or not isinstance(frame.get("method"), str):
        return _refuse(
            id_, "invalid_request", 'cannot take this frame: it needs "jsonrpc": "2.0" and a "method" string'
        )
    if extra := sorted(set(frame) - JSONRPC_MEMBERS):
        return _refuse(
            id_, "invalid_request", f"cannot take this frame, because of its unknown member {extra[0][:64]!r}"
        )
    params = frame.get("params", {})
    if not isinstance(params, dict):
        return _refuse(id_, "invalid_params", "cannot take these params: they must be an object")
    return Request(frame["method"], params, id_)


def _valid_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _ID_LIMIT
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _ID_BITS


def _refuse(id_: Any, kind: str, message: str) -> Refusal:
    return Refusal(encode_error(id_, UsageError(message, kind=kind, hint="see docs/protocol.md")))


def _strict_json(line: bytes) -> Any:
    text = line.decode("utf-8")
    if text.startswith("\ufeff"):
        raise _NotStrict("it begins with a byte-order mark")
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    if is_deeper(value, line, _DEEPEST):
        raise _NotStrict("it is nested too deeply")
    if b"\\" in line and (b"\\ud" in line or b"\\uD" in line):
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # a lone surrogate fails here
    return value


class _NotStrict(ValueError):
    """JSON that a lax reader would take. The message is ours, and quotes nothing of the client's."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _NotStrict("a key stands twice in one object")
    return result


def _no_constant(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotStrict("one of its numbers is too large")  # 1e400 would come in as Infinity
    return number


def _json_reason(error: Exception) -> str:
    """Why, without quoting the client's text back (it may hold a secret)."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "it holds a lone surrogate"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return str(error) if isinstance(error, _NotStrict) else "one of its numbers is too long"


def encode_result(id_: str | int, result: bytes) -> bytes:
    """The answer's line; `result` is JSON already."""
    return b'{"jsonrpc":"2.0","id":' + json.dumps(id_).encode() + b',"result":' + result + b"}\n"


def encode_error(id_: str | int | None, error: ClisupError) -> bytes:
    """The error's line."""
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": error.to_wire()}, separators=(",", ":")).encode() + b"\n"


def encode_request(id_: str, method: str, params: bytes) -> bytes:
    """The line of a request to the client; `params` is JSON already."""
    head = b'{"jsonrpc":"2.0","id":' + json.dumps(id_).encode() + b',"method":"' + method.encode() + b'","params":'
    return head + params + b"}\n"


def encode_notifications(method: str, params: Sequence[bytes]) -> bytes:
    """The lines of several notifications of one method; `params` are JSON already. Empty for none."""
    head = b'{"jsonrpc":"2.0","method":"' + method.encode() + b'","params":'
    return b"".join((head, (b"}\n" + head).join(params), b"}\n")) if params else b""


def encode_notification(method: str, params: bytes) -> bytes:
    """A notification's line; `params` is JSON already: for events the very bytes that the journal holds."""
    return encode_notifications(method, (params,))
