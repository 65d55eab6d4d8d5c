"""A workflow's trace on disk: JSON lines, each one synced before the next stage begins; one writer, by a lock on the file."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from clisup.errors import UsageError, WorldError
from clisup.llm.durable import storage_failed, sync_directory
from clisup.llm.workflow.progress import Progress, progress_of
from clisup.llm.workflow.records import WRONG_LINE, Record, read_line, to_line

__all__ = ["MAX_RECORD_BYTES", "Progress", "Trace", "is_being_written", "read_trace"]

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""One line: a stage with all that was said in it. A longer one is refused, not written."""


class Trace:
    """Opened for one run of a workflow. All methods block; the workflow calls them in a thread.

    A line that a crash left half written is cut off. `records` are those that were there and those appended since.
    """

    def __init__(self, path: Path, fd: int, records: list[Record], size: int) -> None:
        self.path, self.records = path, records
        self._fd, self._size, self._broken = fd, size, False

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open or make the file (0600: prompts and answers are in it). Raises `UsageError` where another process has it open, or where
        it is no trace, and `WorldError` where the system will not.
        """
        file = Path(path)
        try:
            fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o600)
        except OSError as error:
            raise _failed("open", file, error) from error
        try:
            _lock(fd, file)
            records, size = _read(file)
            os.ftruncate(fd, size)
            sync_directory(file.parent)
        except OSError as error:
            os.close(fd)
            raise _failed("open", file, error) from error
        except BaseException:
            os.close(fd)
            raise
        return cls(file, fd, records, size)

    def progress(self) -> Progress | None:
        """Where the workflow stands; None: the file is new."""
        return progress_of(self.records, name=str(self.path)) if self.records else None

    def append(self, record: Record) -> None:
        """Write a line; it is durable when this returns. Raises `WorldError` where the disk will not take it: nothing of it stays then."""
        line = to_line(record)
        if len(line) > MAX_RECORD_BYTES:
            raise UsageError(
                f"cannot write {len(line)} bytes to {self.path}, because a record has {MAX_RECORD_BYTES} at most",
                kind="usage",
                hint="have the stage give less",
            )
        if self._broken:
            raise WorldError(
                f"cannot write to {self.path}, because an earlier line failed",
                kind="storage_failed",
                hint="run it again",
            )
        try:
            self._write(line)
            os.fsync(self._fd)
        except OSError as error:
            self._broken = True  # after a failed sync nobody knows which pages are there
            self._take_back()
            raise _failed("write to", self.path, error) from error
        self._size += len(line)
        self.records.append(record)

    def close(self) -> None:
        """Let another process have it. Safe to call twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            pass  # the next one that opens it cuts the torn line off


def read_trace(path: str | os.PathLike[str]) -> Progress:
    """Where the workflow of a file stands; it may be running. Raises `UsageError` where it is no trace."""
    file = Path(path)
    try:
        records, _ = _read(file)
    except OSError as error:
        reason = f"cannot read {file}, because {(error.strerror or str(error)).lower()}"
        raise UsageError(reason, kind="usage", hint="give the file of a workflow's trace=") from error
    return progress_of(records, name=str(file))


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Does a process run this workflow now?"""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock(fd: int, file: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"cannot run the workflow of {file}, because it is running already",
            kind="usage",
            hint="wait for it, or take another file",
        ) from None


def _read(file: Path) -> tuple[list[Record], int]:
    """The records, and the size of all whole lines. Only the last line may be torn."""
    records: list[Record] = []
    size = 0
    torn = False
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if torn:
                raise _no_trace(file, number - 1)
            try:
                record = read_line(line) if line.endswith(b"\n") else None
                torn = not line.endswith(b"\n")
            except WRONG_LINE:
                record, torn = None, True
            if torn:
                continue
            if number == 1 and record is None:
                raise _no_trace(file, 1)
            size += len(line)
            records += [] if record is None else [record]
    if torn and size == 0 and not _is_torn_beginning(file):
        raise _no_trace(file, 1)
    return records, size


def _is_torn_beginning(file: Path) -> bool:
    """Is what is there the beginning of a first line of ours? Nobody wants another file of theirs emptied."""
    with file.open("rb") as text:
        head = text.read(len(_HEAD))
    return _HEAD.startswith(head)


_HEAD = b'{"type":"workflow_started","at":"'


def _no_trace(file: Path, line: int) -> UsageError:
    return UsageError(
        f"cannot read {file} as a trace, because line {line} is none of a workflow",
        kind="usage",
        hint="give a file that a workflow wrote, or a new one",
    )


def _failed(what: str, file: Path, error: OSError) -> WorldError:
    return storage_failed(what, file, error, hint="mend that, and run it again")
