"""Tunnel between a client here and the daemon of another box: its messages, and the rights of its frames. Pure.

A tunnel carries two streams of bytes over requests and answers of the engine. Each side counts its bytes, so a request or
an answer that comes twice, or never, is repeated without loss and without doubling.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from clisup.errors import UsageError, WorldError
from clisup.fleet.chain import subject_token
from clisup.wire.jsonrpc import ClientAnswer, FrameRefusal, Request, encode_error, read_frame
from clisup.wire.methods import METHODS

__all__ = [
    "OUTPUT_BYTES",
    "Access",
    "CheckedFrame",
    "FrameJoiner",
    "TunnelAnswer",
    "TunnelRequest",
    "call_subject",
    "check_frame",
    "decode",
    "encode",
    "may_send",
    "read_call",
    "renamed",
]

OUTPUT_BYTES = 512 * 1024
"""Bytes of the daemon's output in one answer, and unread bytes that the far box keeps."""

Access = Literal["observe", "drive", "admin"]
_LEVEL: dict[str, int] = {"observe": 0, "drive": 1, "admin": 2}
_NEEDED: dict[Access, frozenset[str]] = {
    "observe": frozenset({"observer", "operator", "admin"}),
    "drive": frozenset({"operator", "admin"}),
    "admin": frozenset({"admin"}),
}
_HERE_ONLY = ("bridge/", "tool/")
_HERE_ONLY_METHODS = frozenset({"daemon/shutdown", "daemon/restart", "daemon/reload", "daemon/gc"})
_PREFIX = "clisup.rpc"
_T = TypeVar("_T", "TunnelRequest", "TunnelAnswer")


class TunnelRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Request to the far box. `at` is the offset of the following input; the client has the output up to `got`.

    `begin` opens the tunnel. With `poll` the answer may wait for output. `close` ends the tunnel.
    """

    tunnel: str
    at: int = 0
    got: int = 0
    begin: bool = False
    poll: bool = False
    close: bool = False
    v: int = 1


class TunnelAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer of the far box. `at` is the offset of the following output; the box has taken the input up to `taken`.

    `end`: no more output follows. `error` says why the tunnel has ended, or why there is none.
    """

    at: int = 0
    taken: int = 0
    end: bool = False
    error: dict[str, Any] | None = None
    v: int = 1


def encode(head: TunnelRequest | TunnelAnswer, data: bytes = b"") -> bytes:
    """Return a message: the head as a line, then the bytes of the stream."""
    return b"%b\n%b" % (msgspec.json.encode(head), data)


def decode(message: bytes, kind: type[_T]) -> tuple[_T, bytes]:
    """Return head and bytes of a message. Raises `WorldError` for a message of a later version, or for another one."""
    line, _, data = message.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        message_ = f"cannot read a message of another box, because {str(error)[:200]}"
        raise WorldError(message_, kind="unsupported", hint="upgrade clisup on both boxes") from None
    if head.v != 1:
        raise WorldError(f"cannot read a message of version {head.v} of another box", kind="unsupported")
    return head, data


def call_subject(box: str, access: str, me: str) -> str:
    """Return the subject of this member's calls of a box. `box` and `access` may be `*`."""
    return f"{_PREFIX}.{box}.{access}.{subject_token(me) if me != '*' else me}"


def read_call(subject: str) -> tuple[Access, str]:
    """Return the class and the caller of a call. The engine lets each member call only under its own name."""
    parts = subject.split(".")
    if len(parts) != 5 or parts[3] not in _LEVEL:
        raise WorldError(f"{subject!r} is not the subject of a call", kind="storage_failed")
    return parts[3], parts[4]  # type: ignore[return-value]


class CheckedFrame(NamedTuple):
    """Frame of a client: its class, or the answer that refuses it. An answer of "" drops the frame."""

    access: Access
    refusal: bytes | None = None
    method: str = ""


def check_frame(line: bytes) -> CheckedFrame:
    """Return the class of a frame, and refuse what works on the box itself only."""
    frame = read_frame(line)
    if isinstance(frame, FrameRefusal):
        return CheckedFrame("observe", frame.answer)
    if isinstance(frame, ClientAnswer):  # to a request of the daemon, which sends none through a tunnel
        return CheckedFrame("observe", b"")
    return CheckedFrame(_access_of(frame.method), _refusal(frame), frame.method)


def _access_of(method: str) -> Access:
    if method == "$/cancel_request":
        return "observe"
    found = METHODS.get(method)
    role = found.role if found is not None else "drive"
    return "admin" if role == "bridge" else role


def _refusal(frame: Request) -> bytes | None:
    here_only = frame.method.startswith(_HERE_ONLY) or frame.method in _HERE_ONLY_METHODS
    if here_only:
        error = UsageError(f"{frame.method} works on the box itself only", kind="unsupported", hint="log in on the box")
    elif frame.method == "session/new" and frame.params.get("env"):
        error = UsageError(
            "variables of a session do not leave this box", kind="unsupported", hint="set them on the box"
        )
    elif frame.method == "session/new" and frame.params.get("tools"):
        error = UsageError(
            "tools of a client work on its own box only", kind="unsupported", hint="run the program there"
        )
    else:
        return None
    return b"" if frame.id is None else encode_error(frame.id, error)


def may_send(access: Access, roles: frozenset[str]) -> bool:
    """Tell whether a member with these roles may send frames of this class. A worker alone may send none."""
    return bool(roles & _NEEDED[access])


def denied(line: bytes, message: str, hint: str) -> bytes:
    """Return the answer to a frame that the sender may not send, or "" for a notification."""
    frame = read_frame(line)
    if not isinstance(frame, Request) or frame.id is None:
        return b""
    return encode_error(frame.id, UsageError(message, kind="permission_denied", hint=hint))


def fits(access: Access, given: Access) -> bool:
    """Tell whether a frame of the class `access` may come by a call of the class `given`."""
    return _LEVEL[access] <= _LEVEL[given]


def renamed(line: bytes, member: str) -> bytes:
    """Return the frame with the member's name in the client's name, so that the journal names it."""
    frame = read_frame(line)
    if not isinstance(frame, Request) or frame.method != "initialize":
        return line
    client = frame.params.get("client")
    name = client.get("name", "") if isinstance(client, dict) else ""
    client = {**(client if isinstance(client, dict) else {}), "name": f"{str(name)[:64]} of {member}"}
    whole = {"jsonrpc": "2.0", "id": frame.id, "method": frame.method, "params": {**frame.params, "client": client}}
    return msgspec.json.encode(whole) + b"\n"


class FrameJoiner:
    """Stream of frames into which whole frames of one's own are put, never into the middle of another one."""

    __slots__ = ("_inside", "_waiting")

    def __init__(self) -> None:
        self._inside, self._waiting = False, b""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to send for a piece of the stream."""
        if not data:
            return b""
        if self._waiting and (cut := data.find(b"\n") + 1):
            data, self._waiting = data[:cut] + self._waiting + data[cut:], b""
        self._inside = not data.endswith(b"\n")
        return data

    def put(self, frame: bytes) -> bytes:
        """Return the bytes to send for a frame of one's own: nothing, while another frame is not whole."""
        if self._inside:
            self._waiting += frame
            return b""
        return frame
