"""Raw lines of CLIs beside their events, for clients that ask for `raw`. Blobs by page."""

from __future__ import annotations

import re

import trio

from clisup.errors import UsageError
from clisup.model.journal import StoredEvent
from clisup.store.session_dir import SessionDir
from clisup.store.spool import native_parts, read_range, spool_size, with_parts

__all__ = ["blob_page", "whole_blob", "with_native"]

_RAW = re.compile(r"raw-(\d+)-(out|err)-(\d+)-(\d+)")
_PROMPT = re.compile(r"prompt-[0-9a-z-]+")
_BLOB = re.compile(r"blob-(\d+)-(out|err)-[0-9a-z.-]+")


async def with_native(stored: StoredEvent, directory: SessionDir) -> bytes:
    """Return the event's envelope with `native`, the line in the spool. Daemon events and missing lines have no `native`.

    Other tasks run between the slices of a long line.
    """
    parts: list[bytes] = []
    for part in native_parts(stored.src, directory):
        if parts:
            await trio.lowlevel.checkpoint()
        parts.append(part)
    return with_parts(stored.event, parts)


def blob_page(directory: SessionDir, name: str, offset: int, limit: int) -> tuple[bytes, int]:
    """Return the bytes from `offset` on, and the whole size. Raises `UsageError(invalid_params)` for a missing blob."""
    if match := _RAW.fullmatch(name):
        run, spool, start, end = match.groups()
        run_dir = directory.run(int(run))
        first, last = int(start), int(end)
        path = run_dir.out if spool == "out" else run_dir.err
        if first < last <= spool_size(path):
            return read_range(path, first + offset, max(0, min(limit, last - first - offset))), last - first
    elif match := _BLOB.fullmatch(name):
        path = directory.run(int(match.group(1))).blob_path(name)
        if size := spool_size(path):
            return read_range(path, offset, limit), size
    elif _PROMPT.fullmatch(name) and (size := spool_size(directory.kept_path(name))):
        return read_range(directory.kept_path(name), offset, limit), size
    raise UsageError(f"blob {name} not found", hint="take the name from an event")


def whole_blob(directory: SessionDir, name: str) -> bytes:
    """Return a whole blob."""
    _, size = blob_page(directory, name, 0, 0)
    return blob_page(directory, name, 0, size)[0]
