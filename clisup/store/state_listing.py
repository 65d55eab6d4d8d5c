"""Listing of the state directory: names, sizes, modes and times, never contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime

__all__ = ["MAX_ENTRIES", "state_listing"]

MAX_ENTRIES = 5000


def state_listing(state_dir: str) -> str:
    """Return a line for each file and directory:

    `mode uid bytes time path`, up to `MAX_ENTRIES`. Links are not followed.
    """
    lines = []
    for number, path in enumerate(_walk(state_dir)):
        if number >= MAX_ENTRIES:
            lines.append(f"... more than {MAX_ENTRIES} entries")
            break
        lines.append(_line(path))
    return "\n".join(lines) + "\n"


def _walk(top: str) -> Iterator[str]:
    yield top
    for directory, directories, files in os.walk(top):
        directories.sort()
        for name in sorted([*directories, *files]):
            yield os.path.join(directory, name)


def _line(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError as error:
        return f"{error.strerror}  {path}"
    when = datetime.fromtimestamp(found.st_mtime, UTC)
    shown = path.encode("utf-8", "replace").decode().replace("\n", "?")
    return f"{stat.filemode(found.st_mode)} {found.st_uid:>5} {found.st_size:>12} {when:%Y-%m-%dT%H:%M:%SZ} {shown}"
