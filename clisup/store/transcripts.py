"""The CLI's own transcript of a session: is it there, how long is it, what was appended. Read only, never written."""

from __future__ import annotations

import glob
import os
from typing import NamedTuple

__all__ = [
    "READ_LIMIT",
    "Mark",
    "appended",
    "find_transcript",
    "transcript_exists",
    "transcript_mark",
    "transcript_size",
]

READ_LIMIT = 8 * 1024 * 1024
"""Of what one run appended: a prompt stands at its beginning."""


class Mark(NamedTuple):
    """By what a transcript is known to be as it was."""

    size: int
    mtime_ns: int
    inode: int


def transcript_exists(pattern: str | None) -> bool:
    """Is there a file that matches the adapter's pattern? False where the adapter has none."""
    return find_transcript(pattern) is not None


def transcript_mark(pattern: str | None) -> Mark | None:
    """What it is now; None where there is none."""
    path = find_transcript(pattern)
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return Mark(found.st_size, found.st_mtime_ns, found.st_ino) if found is not None else None


def transcript_size(pattern: str | None) -> int:
    """Its bytes; 0 where there is none yet."""
    path = find_transcript(pattern)
    try:
        return os.stat(path).st_size if path is not None else 0
    except OSError:
        return 0


def appended(pattern: str | None, after: int) -> bytes | None:
    """What stands after the byte `after`, at most `READ_LIMIT` of it; None where there is no transcript. Raises `OSError`."""
    path = find_transcript(pattern)
    if path is None:
        return None
    with open(path, "rb") as file:
        file.seek(after)
        return file.read(READ_LIMIT)


def find_transcript(pattern: str | None) -> str | None:
    """The path of the first file that matches the adapter's pattern."""
    return None if pattern is None else next(glob.iglob(pattern), None)
