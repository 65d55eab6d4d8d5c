"""Drift on disk: unknown parts of the CLIs' output, names found in the CLIs' files, and the known fields."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from clisup.host.files import write_json
from clisup.ops.drift import DriftBook, KnownFields

__all__ = ["drift_file", "known_fields", "load_drift", "save_drift"]

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
        with open(path, "rb") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
