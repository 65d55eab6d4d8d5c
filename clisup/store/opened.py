"""Opening of a session as the journal proves it.

A tool of a CLI runs as the same user and can write every file of a session. So the journal holds what a session was
opened with, from before the first run on: the whole spec, and a digest of each private file. `session.json` is a copy
for readers. Where the copy differs, the journal's values hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

from clisup.config.session_spec import SPEC_VERSION, SessionApprovals, SessionSpec
from clisup.errors import UsageError, WorldError
from clisup.host.files import FILE_LIMIT, open_regular, storage_error
from clisup.model.journal import read_entries
from clisup.model.structs import JsonObject
from clisup.store.journal_reader import Segments
from clisup.store.journal_store import check_version, segment_records

__all__ = ["SPEC_FILE", "Opened", "opening", "settle"]

SPEC_FILE = "session.json"


class Opened(NamedTuple):
    """Session as it was opened.

    `files` are the digests of its private files, by name, or None if an earlier version opened the session and the
    journal proves nothing. `refused` are the names in `session.json` whose values were not used.
    """

    spec: SessionSpec
    files: Mapping[str, str] | None = None
    refused: tuple[str, ...] = ()


def opening(spec: SessionSpec, files: Mapping[str, str]) -> JsonObject:
    """Return what the journal keeps of an opening. A field that is missing there has its default, but for the version."""
    kept = spec.model_dump(mode="json", exclude_defaults=True) | {"version": spec.version}
    return {"spec": kept, "files": dict(files)}


def settle(session_id: str, path: str, stored: SessionSpec | None) -> Opened | None:
    """Return the session in the directory `path`, whose `session.json` holds `stored`; None: nothing readable.

    Return None if the directory holds no whole session. Raises `WorldError(storage_failed)` if nothing proves the
    session, and `UsageError(unsupported)` for files of a newer clisup.
    """
    journaled, begun = _journaled(os.path.join(path, "journal"))
    if journaled is None:
        return _unproved(session_id, path, stored, begun=begun)
    if not begun and not os.path.lexists(os.path.join(path, SPEC_FILE)):
        return None  # `session.json` comes last: a crash ended the creation
    spec = SessionSpec.read(session_id, journaled["spec"])
    _check(session_id, spec)
    return Opened(spec, {str(name): str(digest) for name, digest in journaled["files"].items()}, _refused(spec, stored))


def _refused(spec: SessionSpec, stored: SessionSpec | None) -> tuple[str, ...]:
    if stored is None:
        return ("all",)
    return tuple(name for name in SessionSpec.model_fields if getattr(stored, name) != getattr(spec, name))


def _unproved(session_id: str, path: str, stored: SessionSpec | None, *, begun: bool | None) -> Opened | None:
    """Return a session that an earlier version opened. `begun` is None without any journal."""
    if stored is None and begun is None:
        return None
    if stored is None:
        raise _damaged(session_id, "its session.json is missing, damaged or another session's")
    _check(session_id, stored)
    if begun:
        return Opened(stored)
    if stored.journaled or os.path.isdir(os.path.join(path, "runs")):
        raise _damaged(session_id, "its journal is missing or holds no opening")
    # No turn ran, and the file alone says what is allowed. A deny rule needs no proof.
    denials = tuple(rule for rule in stored.approvals.rules if rule.decision == "deny")
    approvals = SessionApprovals(rules=denials, unattended=stored.approvals.unattended)
    held = stored.model_copy(update={"approvals": approvals, "permission_mode": None})
    return Opened(held, refused=_refused(held, stored))


def _check(session_id: str, spec: SessionSpec) -> None:
    if spec.session_id != session_id:
        raise _damaged(session_id, "its session.json is missing, damaged or another session's")
    if spec.version > SPEC_VERSION:
        raise UsageError(
            f"cannot read session {session_id}, because a newer clisup wrote it (version {spec.version})",
            kind="unsupported",
            hint="use that version, or move the session's directory away",
        )


def _damaged(session_id: str, why: str) -> WorldError:
    return WorldError(
        f"cannot read session {session_id}, because {why}",
        kind="storage_failed",
        hint="restore it, or move the session's directory away",
    )


def _journaled(directory: str) -> tuple[Any, bool | None]:
    """Return the opening in a journal, or None, and whether the journal holds events: None without any segment."""
    try:
        files, segments = Segments(directory), Segments.listed(directory)
        for first in reversed(segments):
            path = files.path_of(first)
            with open(open_regular(path), "rb") as file:
                head = file.readline(FILE_LIMIT)
                if not head.endswith(b"\n"):
                    continue  # a crash cut the line: the segment before is the last
                check_version(path, head)
                begun = first > 1 or os.fstat(file.fileno()).st_size > len(head)
                return _in_head(head) or _in_memos(path, file), begun
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise storage_error("read the journal in", directory, error) from None
    return None, None


def _in_head(head: bytes) -> Any:
    try:
        (record,) = read_entries(head)[0]
    except ValueError:  # the fold of the journal reports the damage
        return None
    return _whole((record.snapshot or {}).get("opened"))


def _in_memos(path: str, file: BinaryIO) -> Any:
    """Return the opening that the first daemon of this version recorded in an older session, or None."""
    file.seek(0)
    memos = (record.memo or {} for _, records in segment_records(path, file, ()) for record in records)
    return next(filter(None, (_whole(memo.get("opened")) for memo in memos)), None)


def _whole(found: Any) -> Any:
    """Return the opening, or None: a value of another form proves nothing."""
    whole = isinstance(found, dict) and isinstance(found.get("spec"), dict) and isinstance(found.get("files"), dict)
    return found if whole else None
