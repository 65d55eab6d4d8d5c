"""Durable cursors by name: `<state_dir>/cursors/<name>.jsonl`, a head and one short line for each acknowledgement.

An acknowledgement survives a `kill -9` at once. The file is not synced: after a power loss a cursor may be an older
one. The daemon then sends again the events acknowledged since.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.files import make_private_dir, storage_error, write_atomic
from clisup.policy.cursors import encode_head, encode_move, read_cursors

__all__ = ["Cursor", "CursorStore"]

COMPACT_BYTES = 256 * 1024  # of moves after the head; a longer file is rewritten


class Cursor:
    """Cursor of one name: a seq for each session that was acknowledged under the name."""

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
        self._loaded: dict[str, Cursor] = {}

    def names(self) -> list[str]:
        """Return the name of every stored cursor, sorted."""
        try:
            return sorted(name.removesuffix(".jsonl") for name in os.listdir(self._dir) if name.endswith(".jsonl"))
        except FileNotFoundError:
            return []

    def get(self, name: str) -> Cursor | None:
        """Return the cursor of this name, or None if there is no such cursor.

        Raises `WorldError(storage_failed)` for a damaged file.
        """
        if name not in self._loaded and (cursor := self._load(name)) is not None:
            self._loaded[name] = cursor
        return self._loaded.get(name)

    def make(self, name: str) -> Cursor:
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
        cursor = Cursor(self._path(name), {}, all_known=False)
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

    def _load(self, name: str) -> Cursor | None:
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                data = file.read()
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
        return Cursor(path, seqs, all_known=all_known)


def _append(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    size = os.fstat(fd).st_size
    try:
        if os.write(fd, line) != len(line):
            os.ftruncate(fd, size)  # half a line would spoil the next line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
