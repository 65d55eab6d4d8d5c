"""Transcripts of CLIs on disk, newest first, by their beginnings and ends. Everything here blocks."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

__all__ = ["EDGE_BYTES", "MAX_LISTED", "MAX_READ", "TranscriptEdges", "newest_transcripts"]

EDGE_BYTES = 256 * 1024
"""Bytes that are read at the beginning of a transcript, and at its end."""

MAX_LISTED = 20_000
"""Transcripts of one backend whose time is compared at most."""

MAX_READ = 500
"""Transcripts of one backend that are read at most."""

_T = TypeVar("_T")


class TranscriptEdges(NamedTuple):
    """Beginning and end of a transcript, and the time of its last change in seconds since 1970."""

    name: str
    head: bytes
    tail: bytes
    changed: float


def newest_transcripts(pattern: str, read: Callable[[TranscriptEdges], _T | None], limit: int) -> list[_T]:
    """Return what `read` makes of the newest transcripts, at most `limit`. Files that cannot be read are left out."""
    found = (read(edges) for edges in islice(_by_time(pattern), MAX_READ))
    return list(islice((item for item in found if item is not None), limit))


def _by_time(pattern: str) -> Iterator[TranscriptEdges]:
    dated = []
    for path in islice(glob.iglob(pattern), MAX_LISTED):
        try:
            dated.append((os.stat(path).st_mtime, path))
        except OSError:
            continue
    for changed, path in sorted(dated, reverse=True):
        try:
            yield TranscriptEdges(os.path.basename(path), *_edges(path), changed)
        except OSError:
            continue


def _edges(path: str) -> tuple[bytes, bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe in the place of a file must not hang
    with open(fd, "rb") as file:
        head = file.read(EDGE_BYTES) or b""
        size = os.fstat(fd).st_size
        if size <= EDGE_BYTES:
            return head, head
        file.seek(max(EDGE_BYTES, size - EDGE_BYTES))
        return head, file.read(EDGE_BYTES)
