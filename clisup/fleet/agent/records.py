"""Records of a box that other boxes read: its beat, and the rows of its sessions. Pure."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from clisup.errors import WorldError

__all__ = ["BEAT_VERSION", "BoxBeat", "SessionRecord", "read_beat", "read_record", "same_row", "session_key"]

BEAT_VERSION = 1
_T = TypeVar("_T", bound=msgspec.Struct)
_VOLATILE = frozenset({"idle_s", "age_s", "rss_bytes", "subscribers", "next_timer", "last_event"})


class BoxBeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Beat of a box. `at` is its own time of day, `lag` the events that are not copied yet.

    `incarnation` is a random word of its state directory. `free` are the turns that can start at once. `backends` maps the
    installed backends to their versions. A clisup that does not know a field drops it.
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


class SessionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Row of a session as `session/list` has it, or None for a deleted session."""

    row: dict[str, Any] | None = None


def read_beat(value: bytes) -> BoxBeat:
    """Return a stored beat. Raises `WorldError` for a value that is none."""
    return _read(value, BoxBeat, "the beat of a box")


def read_record(value: bytes) -> SessionRecord:
    """Return a stored row. Raises `WorldError` for a value that is none."""
    return _read(value, SessionRecord, "the row of a session")


def _read(value: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        message = f"cannot read {what}, because {str(error)[:200]}"
        raise WorldError(message, kind="storage_failed", hint="upgrade clisup on this box") from None


def same_row(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Tell whether two rows differ at most in fields that change all the time."""
    return _steady(one) == _steady(other)


def _steady(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {name: value for name, value in row.items() if name not in _VOLATILE}


def session_key(member: str, session_id: str) -> str:
    """Return the key of a session's row."""
    return f"{member}.{session_id}"
