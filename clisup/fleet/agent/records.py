"""Records of a box that other boxes read: its beat, and the rows of its sessions. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from clisup.errors import WorldError

__all__ = ["BEAT_VERSION", "BoxBeat", "SessionRecord", "read_beat", "read_record", "same_row", "session_key"]

BEAT_VERSION = 1
_T = TypeVar("_T", bound=msgspec.Struct)
_VOLATILE = frozenset({"idle_s", "age_s", "rss_bytes", "subscribers", "next_timer", "last_event"})


class BoxBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Beat of a box. `at` is its own time of day, `lag` the events that are not copied yet.

    `incarnation` is a random word of its state directory. `free` are the turns that can start at once. `backends` maps the
    installed backends to their versions. `accounts` are the shared accounts that the box runs. A clisup that does not know a
    field drops it.
    """

    version: str
    incarnation: str
    at: float
    protocol: int = BEAT_VERSION
    daemon: Literal["up", "down"] = "up"
    running: int = 0
    waiting: int = 0
    free: int = 0
    sessions: int = 0
    lag: int = 0
    share: Literal["all", "status"] = "all"
    roles: list[str] = []
    labels: dict[str, str] = {}
    backends: dict[str, str] = {}
    held: list[str] = []
    workspaces: list[str] = []
    accept: list[str] = []
    accounts: list[str] = []


class SessionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Row of a session as `session/list` has it, or None for a deleted session."""

    row: dict[str, Any] | None = None


class _Row(msgspec.Struct):
    """Fields of a row that this clisup computes with. Another box wrote them."""

    session_id: str
    next_seq: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    state: str = ""
    approvals: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    created_at: str | None = None
    labels: dict[str, str] | None = None


def read_beat(value: bytes) -> BoxBeat:
    """Return a stored beat. Raises `WorldError` for a value that is none."""
    return _read(value, BoxBeat, "the beat of a box")


def read_record(value: bytes, session_id: str | None = None) -> SessionRecord:
    """Return a stored row. Raises `WorldError` for a value that is none, or the row of another session."""
    what = "the row of a session"
    record = _read(value, SessionRecord, what)
    if record.row is not None:
        try:
            row = msgspec.convert(record.row, _Row)
        except msgspec.ValidationError as error:
            raise _unreadable(what, str(error)) from None
        if session_id is not None and row.session_id != session_id:
            raise _unreadable(what, "it is stored as the row of another session")
    return record


def _read(value: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(what, str(error)) from None


def _unreadable(what: str, why: str) -> WorldError:
    message = f"cannot read {what}, because {why[:200]}"
    return WorldError(message, kind="storage_failed", hint="upgrade clisup on this box")


def same_row(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Tell whether two rows differ at most in fields that change all the time."""
    return _steady(one) == _steady(other)


def _steady(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {name: value for name, value in row.items() if name not in _VOLATILE}


def session_key(member: str, session_id: str) -> str:
    """Return the key of a session's row."""
    return f"{member}.{session_id}"
