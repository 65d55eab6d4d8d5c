"""Sessions and events read from the files of the state directory, without a daemon.

The reader locks, cuts, creates and repairs nothing. It folds the last segment of a journal as a daemon does at its start.
The ledger does not fold most events: of these, the reader checks only the checksum.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from clisup.config.session_spec import SPEC_VERSION, SessionSpec, why_unreadable
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host.files import storage_error
from clisup.host.locks import lock_holder
from clisup.model.journal import DamagedLine, Record, event_slice, read_lines, stored_event, whole_lines
from clisup.model.sessions.ledger import FOLDED, Ledger
from clisup.store.journal_reader import Segments
from clisup.store.journal_store import LOAD_CHUNK, check_version, read_records
from clisup.store.session_dir import SessionDir, list_sessions
from clisup.store.spool import native_parts, with_parts

__all__ = [
    "StoredJournal",
    "StoredSession",
    "check_spec",
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
    keeper: int | None = None
    lines: deque[bytes] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))

    @property
    def closed(self) -> bool:
        """Tell whether the session is closed."""
        return self.ledger.closed

    @property
    def last_events(self) -> list[dict[str, Any]]:
        """Return the newest events, oldest first."""
        return [json.loads(event) for line in self.lines if (event := event_slice(line)) is not None]


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
    spec = check_spec(directory)
    if spec is None:
        return None
    found = StoredSession(spec)
    try:
        _fold(found, directory.journal)
    except OSError as error:
        raise storage_error("read the journal in", directory.journal, error) from None
    held = found.ledger.active_turn
    if held is not None and held.run:
        found.keeper = lock_holder(directory.run(held.run).lock)
    return found


def check_spec(directory: SessionDir) -> SessionSpec | None:
    """Return the spec that the session was opened with, or None if there is no session.

    Raises as `read_session` does.
    """
    spec = directory.load_spec()
    if spec is None and not _has_journal(directory):
        return None
    if spec is None or spec.session_id != directory.id:
        raise WorldError(
            f"cannot read session {directory.id}, because its session.json is missing, damaged or another session's",
            kind="storage_failed",
            hint="restore it, or move the session's directory away",
        )
    if spec.version > SPEC_VERSION:
        raise UsageError(
            f"cannot read session {directory.id}, because a newer clisup wrote it (version {spec.version})",
            kind="unsupported",
            hint="use that version, or move the session's directory away",
        )
    return spec


def _has_journal(directory: SessionDir) -> bool:
    """Tell whether the journal holds a segment.

    An empty journal belongs to a session that was being created: its `session.json` comes before its first event.
    """
    try:
        return bool(os.listdir(directory.journal))
    except FileNotFoundError:
        return False


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
        with open(path, "rb") as file:
            if _has_head(path, file):
                found.first_seq, found.next_seq = segments[0], segments[-1]
                file.seek(0)
                _fold_segment(found, path, file)
                return
        segments.pop()


def _has_head(path: str, file: BinaryIO) -> bool:
    """Read the first line of a segment and check its version. Return False if a crash cut the line: use the segment before.

    Raises `UsageError(unsupported)`.
    """
    head = file.readline()
    if not head.endswith(b"\n"):
        return False
    check_version(path, head)
    return True


def _fold_segment(found: StoredSession, path: str, file: BinaryIO) -> None:
    offset, rest = 0, b""
    while chunk := file.read(LOAD_CHUNK):
        data = rest + chunk
        whole = whole_lines(data)
        for record in read_records(data[:whole], path, offset, FOLDED):
            found.ledger.apply(record)
            if record.event is not None:
                found.next_seq = record.event["seq"] + 1
        found.lines.extend(data[:whole].rsplit(b"\n", LAST_EVENTS + 1)[:-1][-LAST_EVENTS:])
        offset, rest = offset + whole, data[whole:]  # at the end, the rest is a torn tail: the next daemon cuts it


# -- events -------------------------------------------------------------------------------------------------------------


class StoredJournal(Segments):
    """Segments of a journal on disk, up to the last whole event."""

    def __init__(self, directory: str) -> None:
        """Find the segments and the last event.

        Raises `WorldError(storage_failed)` if the journal cannot be read, and `UsageError(unsupported)` if a newer
        clisup wrote it.
        """
        super().__init__(directory)
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
            with open(path, "rb") as file:
                if _has_head(path, file):
                    self.next_seq = (_last_seq(file) or self._segments[-1] - 1) + 1
                    return
            self._segments.pop()


def _last_seq(file: BinaryIO) -> int | None:
    """Return the seq of the last whole event, or None if there is no event.

    A torn line may follow the last whole event.
    """
    end, wanted = file.seek(0, os.SEEK_END), TAIL
    while True:
        file.seek(max(0, end - wanted))
        data = file.read(end - file.tell())
        for line in reversed(data[: whole_lines(data)].split(b"\n")[:-1]):
            if (found := stored_event(line)) is not None:
                return found[0]
        if wanted >= end:
            return None
        wanted *= 4  # a line may be longer


def stored_events(state_dir: str, session_id: str, *, raw: bool) -> Iterator[dict[str, Any]]:
    """Yield all events of a session, with `native` if `raw` is set. Dicts of type `gap` report missing events.

    Raises `ClisupError` for a session that does not exist or cannot be read.
    """
    directory = SessionDir(state_dir, session_id)
    with _readable(session_id):
        if check_spec(directory) is None:
            raise _not_found(session_id)
        reader = StoredJournal(directory.journal).reader(0)
    try:
        while True:
            events = reader.read()
            if (gap := reader.take_gap()) is not None:
                yield {"type": "gap", "session_id": session_id, **gap._asdict()}
            if not events:
                return
            for _, event, line in events:
                yield json.loads(with_parts(event, list(native_parts(line, directory))) if raw else event)
    finally:
        reader.close()


def stored_records(directory: str) -> Iterator[Record]:
    """Yield every record of every segment of a journal, snapshots too, oldest first. Skip damaged lines and a torn tail.

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
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if number == 0:
                check_version(path, line)
            try:
                yield from read_lines(line)
            except DamagedLine:
                continue
