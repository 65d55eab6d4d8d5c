"""The CLI's own transcript of a session: is it there, how long is it, what was appended. Read only, never written."""

from __future__ import annotations

import glob
import os

__all__ = ["appended", "transcript_exists", "transcript_size"]

READ_LIMIT = 8 * 1024 * 1024
"""Of what one run appended: a prompt stands at its beginning."""


def transcript_exists(pattern: str | None) -> bool:
    """Is there a file that matches the adapter's pattern? False where the adapter has none."""
    return _find(pattern) is not None


def transcript_size(pattern: str | None) -> int:
    """Its bytes; 0 where there is none yet."""
    path = _find(pattern)
    try:
        return os.stat(path).st_size if path is not None else 0
    except OSError:
        return 0


def appended(pattern: str | None, after: int) -> bytes | None:
    """What stands after the byte `after`, at most `READ_LIMIT` of it; None where there is no transcript. Raises `OSError`."""
    path = _find(pattern)
    if path is None:
        return None
    with open(path, "rb") as file:
        file.seek(after)
        return file.read(READ_LIMIT)


def _find(pattern: str | None) -> str | None:
    return None if pattern is None else next(glob.iglob(pattern), None)
