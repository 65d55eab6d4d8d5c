"""Transcript of a session, written by the CLI: existence, size and appended bytes. clisup only reads the file."""

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
"""Limit of bytes read of one run's appended part: the prompt is at the beginning of that part."""


class Mark(NamedTuple):
    """Marks of a transcript: equal marks mean an unchanged file."""

    size: int
    mtime_ns: int
    inode: int


def transcript_exists(pattern: str | None) -> bool:
    """Tell whether a file matches the adapter's pattern. Return False if the adapter has no pattern."""
    return find_transcript(pattern) is not None


def transcript_mark(pattern: str | None) -> Mark | None:
    """Return the current mark of the transcript, or None if there is no transcript."""
    path = find_transcript(pattern)
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return Mark(found.st_size, found.st_mtime_ns, found.st_ino) if found is not None else None


def transcript_size(pattern: str | None) -> int:
    """Return the size of the transcript in bytes, or 0 if there is no transcript yet."""
    path = find_transcript(pattern)
    try:
        return os.stat(path).st_size if path is not None else 0
    except OSError:
        return 0


def appended(pattern: str | None, after: int) -> bytes | None:
    """Return at most `READ_LIMIT` bytes after the byte `after`, or None if there is no transcript. Raises `OSError`."""
    path = find_transcript(pattern)
    if path is None:
        return None
    with open(path, "rb") as file:
        file.seek(after)
        return file.read(READ_LIMIT)


def find_transcript(pattern: str | None) -> str | None:
    """Return the path of the first file that matches the adapter's pattern, or None."""
    return None if pattern is None else next(glob.iglob(pattern), None)
