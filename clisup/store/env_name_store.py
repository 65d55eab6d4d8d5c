"""Store of the names that the last checks found in a CLI's files, in the state directory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from clisup.errors import WorldError
from clisup.host.files import make_private_dir, read_json, write_json
from clisup.host.safe_paths import make_safe_dir
from clisup.ops.env_names import NameCheck, restored

__all__ = ["last_check", "load_checks", "save_checks"]


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
    write_json(_file(state_dir, kind), {"checks": [dataclasses.asdict(check) for check in checks]})


def last_check(state_dir: str, kind: str) -> str | None:
    """Return the version whose names were checked last, or None if no version was checked."""
    checks = load_checks(state_dir, kind)
    return checks[-1].version if checks else None


def _file(state_dir: str, kind: str) -> str:
    return os.path.join(state_dir, "env-names", f"{kind}.json")
