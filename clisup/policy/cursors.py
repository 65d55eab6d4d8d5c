"""Rules for cursors: where a subscription begins, and the format of a named cursor's file. Pure.

A cursor is the last seq that a client has finished with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["begin_after", "encode_head", "encode_move", "read_cursors"]


def begin_after(
    ends: Mapping[str, int],
    *,
    asked: int | Mapping[str, int] | None,
    stored: Mapping[str, int] | None = None,
    all_known: bool = False,
) -> dict[str, int]:
    """Return, for each session of `ends` (id -> its last seq), the seq after which its events are sent.

    A stored cursor comes first, so that a client may repeat its initial position in every call. `asked` comes next; a
    session missing in that map is new to the client and begins at 0. Without `asked` a session begins at its last seq.
    If the name was used for all sessions before (`all_known`), a session that came later begins at 0 instead.
    """
    begin: dict[str, int] = {}
    for session_id, last in ends.items():
        if stored is not None and session_id in stored:
            begin[session_id] = min(stored[session_id], last)
        elif asked is None:
            begin[session_id] = 0 if all_known else last
        else:
            begin[session_id] = asked if isinstance(asked, int) else asked.get(session_id, 0)
    return begin


def encode_head(cursors: Mapping[str, int], *, all_known: bool) -> bytes:
    """Return the first line of a cursor's file: all cursors up to now."""
    return json.dumps({"v": 1, "all": all_known, "cursors": dict(cursors)}, separators=(",", ":")).encode() + b"\n"


def encode_move(session_id: str, seq: int) -> bytes:
    """Return a later line of a cursor's file: the new cursor of one session."""
    return f'["{session_id}",{seq}]\n'.encode()


def read_cursors(data: bytes) -> tuple[dict[str, int], bool, int]:
    """Return (cursors, all_known, bytes of whole lines) of a file. The bytes after the whole lines are torn.

    Raises `ValueError` for a damaged file.
    """
    whole = data.rfind(b"\n") + 1
    try:
        return *_read(data[:whole]), whole
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"no cursor file: {type(error).__name__}") from None


def _read(data: bytes) -> tuple[dict[str, int], bool]:
    head, *moves = data.splitlines() or [b""]
    fields = json.loads(head)
    if not isinstance(fields, dict) or fields.get("v") != 1:
        raise ValueError("no cursor file of this version")
    cursors = {str(id_): int(seq) for id_, seq in fields["cursors"].items()}
    for line in moves:
        session_id, seq = json.loads(line)
        cursors[str(session_id)] = int(seq)
    return cursors, bool(fields.get("all"))
