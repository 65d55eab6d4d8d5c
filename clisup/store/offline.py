"""Sessions and events read from the files of the state directory, without a daemon.

The reader locks, cuts, creates and repairs nothing. It folds the last segment of a journal as a daemon does at its start.
The ledger does not fold most events: of these, the reader checks only the checksum.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from clisup.config.session_spec import SessionSpec, why_unreadable
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.files import FILE_LIMIT, open_regular, storage_error
from clisup.host.locks import lock_holder
from clisup.model.journal import JournalBlock, Record, scan
from clisup.model.sessions.ledger import FOLDED, Ledger
from clisup.store.journal_reader import Segments
from clisup.store.journal_store import check_version, segment_records
from clisup.store.session_dir import SessionDir, list_sessions
from clisup.store.spool import native_parts, with_parts

__all__ = [
    "StoredJournal",
    "StoredSession",
    "last_events",
    "read_session",
    "read_session_or_raise",
    "stored_events",
    "stored_ids",
    "stored_records",
    "stored_sessions",
]

LAST_EVENTS = 20
TAIL = 64 * 1024


@dataclass
class StoredSession:
    """State of one session from its files. `keeper` is the pid of the keeper that still holds the session's process."""

    spec: SessionSpec
    ledger: Ledger = field(default_factory=Ledger)
    first_seq: int = 1
    next_seq: int = 1
    segments: list[int] = field(default_factory=list)
    keeper: int | None = None

    @property
    def closed(self) -> bool:
        """Tell whether the session is closed."""
        return self.ledger.closed


# -- sessions -----------------------------------------------------------------------------------------------------------


def stored_ids(state_dir: str) -> list[str]:
    """Return the id of every session that has files. Raises `WorldError`."""
    try:
        return list(list_sessions(state_dir))
    except OSError as error:
        raise storage_error("read", state_dir, error) from None


def stored_sessions(state_dir: str, damaged: dict[str, str]) -> Iterator[StoredSession]:
    """Yield every readable session. Put the others into `damaged`, by id, with the reason. Raises `WorldError`."""
    for session_id in stored_ids(state_dir):
        try:
            found = read_session(state_dir, session_id)
        except Exception as error:  # one damaged session must not hide the others
            damaged[session_id] = why_unreadable(error)
            continue
        if found is not None:
            yield found


def read_session_or_raise(state_dir: str, session_id: str) -> StoredSession:
    """Read one session. Raises `ClisupError` for a session that does not exist or cannot be read."""
    with _readable(session_id):
        found = read_session(state_dir, session_id)
    if found is None:
        raise _not_found(session_id)
    return found


def read_session(state_dir: str, session_id: str) -> StoredSession | None:
    """Read one session.

    Return None if the directory holds no session, after a crash while the session was being opened.

    Raises the errors with which a daemon refuses the session: `WorldError(storage_failed)` for damage, and
    `UsageError(unsupported)` for files of a newer clisup.
    """
    directory = SessionDir(state_dir, session_id)
    opened = directory.opened()
    if opened is None:
        return None
    found = StoredSession(opened.spec)
    try:
        _fold(found, directory.journal)
    except OSError as error:
        raise storage_error("read the journal in", directory.journal, error) from None
    held = found.ledger.active_turn
    if held is not None and held.run:
        found.keeper = lock_holder(directory.run(held.run).lock)
    return found


def _not_found(session_id: str) -> UsageError:
    return UsageError(
        f"cannot find session {session_id}, because no files of it are stored",
        kind="session_not_found",
        hint="list the sessions: clisup sessions",
    )


@contextmanager
def _readable(session_id: str) -> Iterator[None]:
    """Turn every failure into a `ClisupError` that quotes nothing from the session's files."""
    try:
        yield
    except ClisupError:
        raise
    except Exception as error:
        raise WorldError(
            f"cannot read session {session_id}, because {why_unreadable(error)}",
            kind="storage_failed",
            hint="restore it, or move the session's directory away",
        ) from None


def _fold(found: StoredSession, journal: str) -> None:
    try:
        files, segments = Segments(journal), Segments.listed(journal)
    except FileNotFoundError:
        return
    while segments:
        path = files.path_of(segments[-1])
        with open(open_regular(path), "rb") as file:
            if _has_head(path, file):
                found.first_seq, found.next_seq, found.segments = segments[0], segments[-1], segments
                file.seek(0)
                _fold_segment(found, path, file)
                return
        segments.pop()


def _has_head(path: str, file: BinaryIO) -> bool:
    """Read the first line of a segment and check its version. Return False if a crash cut the line: use the segment before.

    Raises `UsageError(unsupported)`.
    """
    head = file.readline(FILE_LIMIT)
    if not head.endswith(b"\n"):
        return False
    check_version(path, head)
    return True


def _fold_segment(found: StoredSession, path: str, file: BinaryIO) -> None:
    for _, records in segment_records(path, file, FOLDED):  # a torn tail is left out: the next daemon cuts it
        for record in records:
            found.ledger.apply(record)
            if record.event is not None:
                found.next_seq = record.event["seq"] + 1


def last_events(state_dir: str, session: StoredSession) -> list[dict[str, Any]]:
    """Return the newest events of a session, oldest first. Raises `WorldError(storage_failed)`."""
    directory = SessionDir(state_dir, session.spec.session_id).journal
    journal = StoredJournal(directory, (session.segments, session.next_seq))
    return [json.loads(stored.event) for stored in journal.events(max(0, journal.next_seq - 1 - LAST_EVENTS))]


# -- events -------------------------------------------------------------------------------------------------------------


class StoredJournal(Segments):
    """Segments of a journal on disk, up to the last whole event."""

    def __init__(self, directory: str, known: tuple[list[int], int] | None = None) -> None:
        """Find the segments and the last event, or take the `known` segments and next seq.

        Raises `WorldError(storage_failed)` if the journal cannot be read, and `UsageError(unsupported)` if a newer
        clisup wrote it.
        """
        super().__init__(directory)
        if known is not None:
            self._segments, self.next_seq = known
            return
        try:
            self._segments = self.listed(directory)
            self._find_end()
        except FileNotFoundError:
            pass  # the session was still being created
        except OSError as error:
            raise storage_error("read the journal in", directory, error) from None

    def _find_end(self) -> None:
        while self._segments:
            path = self.path_of(self._segments[-1])
            with open(open_regular(path), "rb") as file:
                if _has_head(path, file):
                    self.next_seq = (_last_seq(file) or self._segments[-1] - 1) + 1
                    return
            self._segments.pop()


def _last_seq(file: BinaryIO) -> int | None:
    """Return the seq of the last whole event, or None if there is no event.

    A torn tail may follow the last whole event.
    """
    end, wanted = file.seek(0, os.SEEK_END), TAIL
    while True:
        file.seek(max(0, end - wanted))
        data = file.read(end - file.tell())
        last = max((entry.frames.end - 1 for _, entry in scan(data) if isinstance(entry, JournalBlock)), default=None)
        if last is not None or wanted >= end:
            return last
        wanted *= 4  # a block may be longer


def stored_events(state_dir: str, session_id: str, *, raw: bool) -> Iterator[dict[str, Any]]:
    """Yield all events of a session, with `native` if `raw` is set. Dicts of type `gap` report missing events.

    Raises `ClisupError` for a session that does not exist or cannot be read.
    """
    directory = SessionDir(state_dir, session_id)
    with _readable(session_id):
        if directory.opened() is None:
            raise _not_found(session_id)
        reader = StoredJournal(directory.journal).reader(0)
    try:
        while True:
            block = reader.read()
            if (gap := reader.take_gap()) is not None:
                yield {"type": "gap", "session_id": session_id, **gap._asdict()}
            if block is None:
                return
            for _, event, src in block.events():
                yield json.loads(with_parts(event, list(native_parts(src, directory))) if raw else event)
    finally:
        reader.close()


def stored_records(directory: str) -> Iterator[Record]:
    """Yield every record of every segment of a journal, snapshots too, oldest first. Skip damage and a torn tail.

    Raises `WorldError(storage_failed)` if a segment cannot be read, and `UsageError(unsupported)` for a segment of a
    later format.
    """
    files = Segments(directory)
    try:
        segments = files.listed(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_error("read", directory, error) from None
    for path in map(files.path_of, segments):
        try:
            yield from _records_of(path)
        except FileNotFoundError:
            continue  # retention removed the segment meanwhile
        except OSError as error:
            raise storage_error("read the journal", path, error) from None


def _records_of(path: str) -> Iterator[Record]:
    with open(open_regular(path), "rb") as file:
        check_version(path, file.readline(FILE_LIMIT))
        file.seek(0)
        for _, records in segment_records(path, file, skip_damage=True):
            yield from records
