"""Disk usage of one session, by journal segment and by run, as retention counts it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from clisup.host.files import FILE_LIMIT, open_regular
from clisup.model.journal import read_entries
from clisup.store.session_dir import SessionDir

__all__ = ["Segment", "Stored", "look_at"]


class Segment(NamedTuple):
    """File of a journal.

    `runs` is the number of runs started before the head of the file. `running` is the number of the run that was still
    running at the head: a run at work, or a live process at rest.
    """

    first_seq: int
    size: int
    written: float
    runs: int
    running: int | None


class Stored(NamedTuple):
    """Segments of a session, in order, and the bytes of each run that is still on disk."""

    segments: list[Segment]
    runs: dict[int, int]


def look_at(directory: SessionDir) -> Stored:
    """Read names, sizes and the head of each segment but the first. Raises `OSError`.

    The function blocks: call it in a thread. The result leaves out files that a client or another pass removes
    meanwhile.
    """
    names = sorted(name for name in _names(directory.journal) if name.removesuffix(".jsonl").isdecimal())
    paths = (os.path.join(directory.journal, name) for name in names)
    segments = [segment for at, path in enumerate(paths) if (segment := _segment(path, head=at > 0)) is not None]
    runs = {number: _tree_size(directory.run(number).path) for number in directory.run_numbers()}
    return Stored(segments, runs)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _segment(path: str, *, head: bool) -> Segment | None:
    try:
        info = os.stat(path)
        state = _snapshot(path) if head else {}
    except FileNotFoundError:
        return None
    held = state.get("current") or state.get("resting") or {}
    first_seq = int(os.path.basename(path).removesuffix(".jsonl"))
    return Segment(first_seq, info.st_size, info.st_mtime, state.get("runs", 0), held.get("run"))


def _snapshot(path: str) -> dict[str, Any]:
    with open(open_regular(path), "rb") as file:
        line = file.readline(FILE_LIMIT)
    try:
        return read_entries(line)[0][0].snapshot or {}
    except (IndexError, ValueError):
        return {}  # a damaged head: no run is known to have ended before this segment


def _tree_size(path: str) -> int:
    size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                size += os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return size
