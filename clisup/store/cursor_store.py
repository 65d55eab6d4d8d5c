"""Durable cursors by name: `<state_dir>/cursors/<name>.jsonl`, a head and one short line for each acknowledgement.

A cursor is the last seq that a client has finished with. An acknowledgement survives a `kill -9` at once. The file is
not synced: after a power loss a cursor may be an older one, and the daemon sends later events again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Mapping

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.files import make_private_dir, read_file, storage_error, write_atomic

__all__ = ["CursorFile", "CursorStore", "begin_after", "encode_head", "encode_move", "read_cursors"]

COMPACT_BYTES = 256 * 1024  # of moves after the head; a longer file is rewritten


class CursorFile:
    """CursorFile of one name: a seq for each session that was acknowledged under the name."""

    def __init__(self, path: str, cursors: dict[str, int], *, all_known: bool) -> None:
        self._path = path
        self._tail = 0  # bytes after the head
        self.seqs = cursors
        self.all_known = all_known

    def move(self, session_id: str, seq: int) -> int:
        """Advance to `seq`, never back, and return the cursor's seq.

        Raises `WorldError(storage_failed)`; the cursor is then unchanged.
        """
        if seq > self.seqs.get(session_id, -1):
            line = encode_move(session_id, seq)
            try:
                failpoint("cursor.before")
                _append(self._path, line)
            except OSError as error:
                raise storage_error("store the cursor in", self._path, error) from None
            failpoint("cursor.after")
            self.seqs[session_id] = seq
            self._tail += len(line)
            if self._tail > COMPACT_BYTES:
                self.save()
        return self.seqs[session_id]

    def begin(self, new: Mapping[str, int], *, all_known: bool) -> None:
        """Add these sessions. Raises `WorldError(storage_failed)`; the cursor is then unchanged."""
        self._change({**self.seqs, **new}, all_known)

    def drop(self, session_ids: Collection[str]) -> None:
        """Remove these sessions. Raises `WorldError(storage_failed)`; the cursor is then unchanged."""
        if not self.seqs.keys().isdisjoint(session_ids):
            self._change({id_: seq for id_, seq in self.seqs.items() if id_ not in session_ids}, self.all_known)

    def _change(self, seqs: dict[str, int], all_known: bool) -> None:
        before = self.seqs, self.all_known
        self.seqs, self.all_known = seqs, all_known
        try:
            self.save()
        except WorldError:
            self.seqs, self.all_known = before
            raise

    def save(self) -> None:
        """Rewrite the whole file. Raises `WorldError(storage_failed)`."""
        write_atomic(self._path, encode_head(self.seqs, all_known=self.all_known), sync=False)
        self._tail = 0


class CursorStore:
    """All cursors of one state directory, at most `limit`. Each file is read once, when its name is first used."""

    def __init__(self, state_dir: str, *, limit: int) -> None:
        self._dir = os.path.join(state_dir, "cursors")
        self.limit = limit
        self._loaded: dict[str, CursorFile] = {}

    def names(self) -> list[str]:
        """Return the name of every stored cursor, sorted."""
        try:
            return sorted(name.removesuffix(".jsonl") for name in os.listdir(self._dir) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return []

    def get(self, name: str) -> CursorFile | None:
        """Return the cursor of this name, or None if there is no such cursor.

        Raises `WorldError(storage_failed)` for a damaged file.
        """
        if name not in self._loaded and (cursor := self._load(name)) is not None:
            self._loaded[name] = cursor
        return self._loaded.get(name)

    def make(self, name: str) -> CursorFile:
        """Create and return a new cursor. Raises `UsageError(limit_exceeded)`, `WorldError(storage_failed)`."""
        if len(self.names()) >= self.limit:
            raise UsageError(
                f"cannot keep one more durable cursor, because there are {self.limit}",
                kind="limit_exceeded",
                hint="forget one (session/unsubscribe with its name), or raise daemon.max_cursors",
                limit="max_cursors",
                value=self.limit,
            )
        make_private_dir(self._dir)
        cursor = CursorFile(self._path(name), {}, all_known=False)
        cursor.save()
        self._loaded[name] = cursor
        return cursor

    def forget(self, name: str) -> None:
        """Remove a cursor; a missing cursor is no error.

        Raises `WorldError(storage_failed)`; the cursor is then kept.
        """
        path = self._path(name)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error("remove the cursor", path, error) from None
        self._loaded.pop(name, None)

    def drop_sessions(self, session_ids: Collection[str]) -> None:
        """Remove sessions that are about to be deleted from every cursor. Raises `WorldError(storage_failed)`.

        Call this before the deletion. A seq left over from a deleted session would apply to the next session of the
        same id. A reader would then miss the first events of the new session. A damaged file is left alone: the next
        use of its name raises the error.
        """
        for name in self.names():
            try:
                cursor = self.get(name)
            except WorldError as error:
                if "errno" in error.data:
                    raise
                continue
            if cursor is not None:
                cursor.drop(session_ids)

    def _path(self, name: str) -> str:
        return os.path.join(self._dir, f"{name}.jsonl")

    def _load(self, name: str) -> CursorFile | None:
        path = self._path(name)
        try:
            data = read_file(path)
            seqs, all_known, whole = read_cursors(data)
            if whole < len(data):
                os.truncate(path, whole)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read the cursor", path, error) from None
        except ValueError:
            raise WorldError(
                f"cannot read the cursor {path}, because it is damaged",
                kind="storage_failed",
                hint="forget it (session/unsubscribe with its name) and name where to begin",
            ) from None
        return CursorFile(path, seqs, all_known=all_known)


def _append(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    size = os.fstat(fd).st_size
    try:
        if os.write(fd, line) != len(line):
            os.ftruncate(fd, size)  # half a line would spoil the next line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)


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
