"""Drift on disk: unknown parts of the CLIs' output, names found in the CLIs' files, and the known fields."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from clisup.errors import WorldError
from clisup.host.files import RECORD_LIMIT, make_private_dir, read_file, read_json, write_json
from clisup.host.safe_paths import make_safe_dir
from clisup.ops.drift import DriftBook, KnownFields, NameCheck, restored

__all__ = ["drift_file", "known_fields", "last_check", "load_checks", "load_drift", "save_checks", "save_drift"]

_FIELDS = Path(__file__).resolve().parent.parent / "backends" / "known_fields"


def drift_file(state_dir: str) -> str:
    """Return the path of the counts of unknown frames and fields: at most some 10 KB for each version of a CLI."""
    return os.path.join(state_dir, "drift.json")


def load_drift(state_dir: str) -> DriftBook:
    """Return the stored counts. An unreadable file counts as empty, because the counts are only statistics."""
    return DriftBook(_object_in(drift_file(state_dir)))


def save_drift(state_dir: str, book: DriftBook) -> None:
    """Store the counts. Raises `WorldError(storage_failed)`."""
    write_json(drift_file(state_dir), book.dump(), sync=False)


def known_fields(kind: str) -> KnownFields | None:
    """Return the fields that frames of this kind have in our recordings, or None if there are no recordings."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind):
        return None
    stored = _object_in(str(_FIELDS / f"{kind}.json"))
    return None if stored is None else {name: frozenset(fields) for name, fields in stored.items()}


def _object_in(path: str) -> dict[str, Any] | None:
    """Return the JSON object in the file, or None on any failure.

    No turn and no start may wait for a disk because of statistics.
    """
    try:
        value = json.loads(read_file(path, RECORD_LIMIT))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def load_checks(state_dir: str, kind: str) -> list[NameCheck]:
    """Return the remembered checks, the last check at the end. Return an empty list if the file cannot be read."""
    try:
        return restored(read_json(_file(state_dir, kind)))
    except WorldError:
        return []


def save_checks(state_dir: str, kind: str, checks: Sequence[NameCheck]) -> None:
    """Store the checks.

    Raises `WorldError(storage_failed)`, or `ConfigurationError` for a state directory that others can change.
    """
    make_safe_dir(state_dir, "keep state in")
    make_private_dir(os.path.dirname(_file(state_dir, kind)))
    write_json(_file(state_dir, kind), {"checks": [asdict(check) for check in checks]})


def last_check(state_dir: str, kind: str) -> str | None:
    """Return the version whose names were checked last, or None if no version was checked."""
    checks = load_checks(state_dir, kind)
    return checks[-1].version if checks else None


def _file(state_dir: str, kind: str) -> str:
    return os.path.join(state_dir, "env-names", f"{kind}.json")
