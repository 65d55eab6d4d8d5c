"""Records of the worktrees that sessions made: `<state_dir>/worktrees/<owner>.json`.

A record is written before its worktree and removed after it. So a record without a session shows what a crash left behind.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from clisup.config.session_spec import SessionWorktree
from clisup.errors import WorldError
from clisup.host.files import make_private_dir, read_json, storage_error, write_json
from clisup.model.structs import JsonObject

__all__ = ["WorktreeRecord", "describe_worktree", "drop_record", "load_records", "save_record"]


@dataclass(frozen=True)
class WorktreeRecord:
    """A worktree, the digest of the request that made it, and the reason why it stays after the session, or None."""

    worktree: SessionWorktree
    digest: str
    kept: str | None = None

    def keep(self, reason: str | None) -> WorktreeRecord:
        """Return the record with the reason why the worktree stays."""
        return replace(self, kept=reason)


def _folder(state_dir: str) -> str:
    return os.path.join(state_dir, "worktrees")


def save_record(state_dir: str, record: WorktreeRecord) -> None:
    """Write a record. Raises `WorldError(storage_failed)`."""
    make_private_dir(_folder(state_dir))
    value = {"worktree": record.worktree.model_dump(), "digest": record.digest, "kept": record.kept}
    write_json(os.path.join(_folder(state_dir), f"{record.worktree.owner}.json"), value)


def drop_record(state_dir: str, owner: str) -> None:
    """Remove a record: its worktree is gone. A record that a bad disk keeps is removed by the next cleanup."""
    with suppress(OSError):
        os.unlink(os.path.join(_folder(state_dir), f"{owner}.json"))


def load_records(state_dir: str) -> dict[str, WorktreeRecord]:
    """Return all readable records by owner. Raises `WorldError(storage_failed)` if the directory cannot be read."""
    try:
        names = sorted(os.listdir(_folder(state_dir)))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise storage_error("read", _folder(state_dir), error) from None
    found = {}
    for name in names:
        if name.endswith(".json") and (record := _read(os.path.join(_folder(state_dir), name))) is not None:
            found[record.worktree.owner] = record
    return found


def _read(path: str) -> WorktreeRecord | None:
    try:
        raw = read_json(path) or {}
        worktree = SessionWorktree.model_validate(raw.get("worktree"))
    except (WorldError, ValueError):  # the file stays for a person to look at
        return None
    kept = raw.get("kept")
    return WorktreeRecord(worktree, str(raw.get("digest")), kept if isinstance(kept, str) else None)


def describe_worktree(
    worktree: SessionWorktree | None, records: dict[str, WorktreeRecord], *, closed: bool
) -> JsonObject | None:
    """Return the field `worktree` of a session's row, or None for a session without a worktree."""
    if worktree is None:
        return None
    record = records.get(worktree.owner)
    state = "removed" if record is None else "kept" if closed else "open"
    kept = (record.kept or "not checked yet: clisup gc") if record is not None and closed else None
    fields = worktree.model_dump(include={"path", "branch", "base", "target", "repository"})
    return {**fields, "state": state, "kept": kept}
