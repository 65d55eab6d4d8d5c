"""Log of a door: names of methods, ids and errors, never texts of a prompt or an answer."""

from __future__ import annotations

import sys
import time

from clisup.host.log_file import LogFile

__all__ = ["LOG_BYTES", "DoorLog"]

LOG_BYTES = 4 * 1024 * 1024
"""Bytes of the log file. Then it is renamed to `FILE.1`."""

LINE_CHARS = 1000
"""Characters of one line at most."""


class DoorLog:
    """Log file of one door; without a path, stderr or no log. Raises `WorldError(storage_failed)` if the file cannot be opened."""

    def __init__(self, path: str | None = None, *, to_stderr: bool = False) -> None:
        self._file = None if path is None else LogFile(path, LOG_BYTES)
        self._to_stderr = to_stderr

    def write(self, text: str) -> None:
        """Write a line with the time, UTC. A full disk is ignored."""
        if self._file is None and not self._to_stderr:
            return
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = "".join(c if c.isprintable() else "?" for c in text[:LINE_CHARS])
        if self._file is not None:
            self._file.send(f"{at} {line}".encode("utf-8", "replace"))
        else:
            print(at, line, file=sys.stderr, flush=True)
