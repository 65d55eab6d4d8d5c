"""A session as its files tell of it, for who looks while no daemon runs: nothing is locked, cut, made or mended.

What a daemon does at its start, this does without a hand: it folds the last segment of the journal. It reads past the events
that the ledger does not fold, which are most of them, with no more than their checksum.
"""

from __future__ import annotations

import json
import os
from collections import deque
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from clisup.core.journal import DamagedLine, event_seq, event_slice, event_type, is_intact, read_lines
from clisup.core.ledger import FOLDED, Ledger
from clisup.core.session_spec import SPEC_VERSION, SessionSpec
from clisup.errors import UsageError, WorldError
from clisup.host.files import storage_error
from clisup.host.journal_store import check_version, damaged
from clisup.host.locks import lock_holder
from clisup.host.session_dir import SessionDir

__all__ = ["StoredSession", "check_spec", "read_session"]

LAST_EVENTS = 20
_MEMO = b'"memo":'
_HEAD = 512  # bytes of a line in which its memo begins, where it has one: only `src` comes before


@dataclass
class StoredSession:
    """What one session's files say. `keeper` is the pid of the keeper that still holds its process, without any daemon."""

    spec: SessionSpec
    ledger: Ledger = field(default_factory=Ledger)
    first_seq: int = 1
    next_seq: int = 1
    keeper: int | None = None
    lines: deque[bytes] = field(default_factory=lambda: deque(maxlen=LAST_EVENTS))

    @property
    def closed(self) -> bool:
        return self.ledger.closed

    @property
    def last_events(self) -> list[dict[str, Any]]:
        """The newest events, oldest first."""
        return [json.loads(event_slice(line) or b"null") for line in self.lines]


def read_session(state_dir: str, session_id: str) -> StoredSession | None:
    """Read one session; None where its directory holds none (a crash while it was being opened).

    Raises as a daemon would refuse it: `WorldError(storage_failed)` for what is damaged, `UsageError(unsupported)` for what a
    newer clisup wrote.
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
    held = found.ledger.held
    if held is not None and held.run:
        found.keeper = lock_holder(directory.run(held.run).lock)
    return found


def check_spec(directory: SessionDir) -> SessionSpec | None:
    """What the session was opened with; None where there is no session. Raises as `read_session` does."""
    spec = directory.load_spec()
    if spec is None and not os.path.exists(directory.journal):
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
        names = (name.removesuffix(".jsonl") for name in os.listdir(journal) if name.endswith(".jsonl"))
    except FileNotFoundError:
        return
    segments = sorted(int(name) for name in names if name.isdecimal())
    while segments:
        path = os.path.join(journal, f"{segments[-1]:012d}.jsonl")
        with open(path, "rb") as file:
            head = file.readline()
            if head.endswith(b"\n"):
                check_version(path, head)
                found.first_seq, found.next_seq = segments[0], segments[-1]
                file.seek(0)
                _fold_segment(found, path, file)
                return
        segments.pop()  # a crash in the middle of its first line: the one before it is the last


def _fold_segment(found: StoredSession, path: str, file: BinaryIO) -> None:
    offset = 0
    for line in file:
        if not line.endswith(b"\n"):
            return  # a torn tail: the next daemon cuts it
        try:
            _fold_line(found, line)
        except DamagedLine as damage:
            raise damaged(path, offset + damage.offset, damage.why) from None
        offset += len(line)
    if found.lines:  # of the last one the ledger wants seq and time, whatever its type
        record = read_lines(found.lines[-1])[0]
        event = record.event or {}
        found.ledger.last_event = {name: event[name] for name in ("seq", "type", "ts")}


def _fold_line(found: StoredSession, line: bytes) -> None:
    if not is_intact(line[:-1]):
        raise DamagedLine(0, "a wrong checksum")
    event = event_slice(line)
    if event is None or event_type(event) in FOLDED or _MEMO in line[: min(_HEAD, len(line) - len(event))]:
        for record in read_lines(line):
            found.ledger.apply(record)
    if event is not None:
        found.next_seq = event_seq(event) + 1
        found.lines.append(line)
