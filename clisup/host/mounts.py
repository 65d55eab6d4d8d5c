"""Mounts that this process sees (proc(5), mountinfo).

Any user of the machine can mount (fusermount), and so choose the name of a mount point. The kernel escapes space, tab,
line feed and backslash in the name, and nothing else. The table is therefore read as bytes and split only at those
bytes.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["Mount", "mounts"]

_ESCAPED = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """Mount: its mount point, and the type of its file system."""

    point: str
    kind: str


def mounts() -> list[Mount]:
    """Return the mounts in the order of the kernel, or an empty list if they cannot be read."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return [mount for line in file if (mount := _mount(line)) is not None]
    except OSError:
        return []


def _mount(line: bytes) -> Mount | None:
    before, _, after = line.partition(b" - ")
    fields, kind = before.split(b" "), after.split(b" ", 1)[0]
    if len(fields) < 5:
        return None
    point = _ESCAPED.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), fields[4])
    return Mount(os.fsdecode(point), os.fsdecode(kind))
