"""Sessions read from their files while no daemon runs: nothing is locked, cut, created or repaired.

The reader folds the last segment of the journal, as a daemon does at its start, but changes nothing. The ledger does
not fold most events: of these, the reader checks only the checksum.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from clisup.config.session_spec import SPEC_VERSION, SessionSpec
from clisup.errors import UsageError, WorldError
from clisup.host.files import storage_error
from clisup.host.locks import lock_holder
from clisup.model.journal import event_slice, whole_lines
from clisup.model.sessions.ledger import FOLDED, Ledger
from clisup.store.journal_reader import Segments
from clisup.store.journal_store import LOAD_CHUNK, check_version, read_records
from clisup.store.session_dir import SessionDir

__all__ = ["StoredSession", "check_spec", "read_session"]

LAST_EVENTS = 20


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


def _has_journal(directory: SessionDir) -> bool:
    """Tell whether the journal holds a segment.

    An empty journal belongs to a session that was being created: its `session.json` comes before its first event.
    """
    try:
        return bool(os.listdir(directory.journal))
    except FileNotFoundError:
        return False


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


def _fold(found: StoredSession, journal: str) -> None:
    try:
        files, segments = Segments(journal), Segments.listed(journal)
    except FileNotFoundError:
        return
    while segments:
        path = files.path_of(segments[-1])
        with open(path, "rb") as file:
            head = file.readline()
            if head.endswith(b"\n"):
                check_version(path, head)
                found.first_seq, found.next_seq = segments[0], segments[-1]
                file.seek(0)
                _fold_segment(found, path, file)
                return
        segments.pop()  # a crash in the middle of its first line: the segment before is the last


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
