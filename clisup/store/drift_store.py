"""Drift on the disk: what was unknown in the CLIs' output, which names their files held, and the fields that are known."""

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
    """Where the counts of unknown frames and fields are kept: some 10 KB for a version of a CLI, at the very most."""
    return os.path.join(state_dir, "drift.json")


def load_drift(state_dir: str) -> DriftBook:
    """What was counted so far; a file that cannot be read counts as none, for it is only statistics."""
    return DriftBook(_object_in(drift_file(state_dir)))


def save_drift(state_dir: str, book: DriftBook) -> None:
    """Raises `WorldError(storage_failed)`."""
    write_json(drift_file(state_dir), book.dump(), sync=False)


def known_fields(kind: str) -> KnownFields | None:
    """The fields that frames of this kind have in our recordings; None where there are none."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", kind):
        return None
    stored = _object_in(str(_FIELDS / f"{kind}.json"))
    return None if stored is None else {name: frozenset(fields) for name, fields in stored.items()}


def _object_in(path: str) -> dict[str, Any] | None:
    """None where there is no such thing: no turn and no start waits for a disk because of statistics."""
    try:
        with open(path, "rb") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
