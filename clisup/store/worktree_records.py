"""Records of the worktrees that sessions made: `<state_dir>/worktrees/<owner>.json`.

A record is written before its worktree and removed after it. So a record without a session shows what a crash left behind.
A model's tool can write a record, too. One that clisup would not have written is ignored: the daemon removes by records.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace

from clisup.config.session_spec import SessionWorktree
from clisup.host.files import make_private_dir, read_small, storage_error, write_json
from clisup.model.structs import JsonObject

__all__ = [
    "BRANCH_PREFIX",
    "WorktreeRecord",
    "describe_worktree",
    "directory_of_worktrees",
    "drop_record",
    "load_records",
    "save_record",
]

BRANCH_PREFIX = "clisup/"
RECORD_LIMIT = 256 * 1024
"""Limit of the file of a record."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


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


def load_records(state_dir: str) -> tuple[dict[str, WorktreeRecord], list[str]]:
    """Return the records by owner, and the names of files that hold none: they stay for a person to look at.

    Raises `WorldError(storage_failed)` if the directory cannot be read.
    """
    try:
        names = sorted(os.listdir(_folder(state_dir)))
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        raise storage_error("read", _folder(state_dir), error) from None
    found, damaged = {}, []
    for name in names:
        owner, ending = os.path.splitext(name)
        if ending != ".json":
            continue
        record = _read(os.path.join(_folder(state_dir), name))
        if record is not None and record.worktree.owner == owner and _fits(record.worktree):
            found[owner] = record
        else:
            damaged.append(name)
    return found, damaged


def _read(path: str) -> WorktreeRecord | None:
    try:
        raw = json.loads(read_small(path, RECORD_LIMIT))
        worktree = SessionWorktree.model_validate(raw["worktree"], strict=True)
        kept = raw.get("kept")
        return WorktreeRecord(worktree, str(raw["digest"]), kept if isinstance(kept, str) else None)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def directory_of_worktrees(git_dir: str, top: str) -> str:
    """Return the directory for worktrees beside the repository's first working tree."""
    return f"{os.path.dirname(git_dir) if os.path.basename(git_dir) == '.git' else top}.worktrees"


def _fits(worktree: SessionWorktree) -> bool:
    """Tell whether clisup makes such worktrees: their paths, branch and commit follow from few facts."""
    name = worktree.branch.removeprefix(BRANCH_PREFIX)
    places = [worktree.git_dir, worktree.repository, worktree.path, worktree.own_git_dir or "/"]
    own = worktree.own_git_dir
    return (
        all(os.path.isabs(place) and os.path.normpath(place) == place for place in places)
        and name != worktree.branch
        and worktree.path == os.path.join(directory_of_worktrees(worktree.git_dir, worktree.repository), name)
        and (own is None or os.path.dirname(own) == os.path.join(worktree.git_dir, "worktrees"))
        and _COMMIT.fullmatch(worktree.base) is not None
    )


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
