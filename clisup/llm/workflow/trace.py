"""A workflow's trace on disk: JSON lines, each synced before the next stage begins. A file lock allows one writer."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import trio
from pydantic import JsonValue

from clisup.errors import UsageError, WorldError
from clisup.llm.budget import Spent
from clisup.llm.failures import usage_error
from clisup.llm.files import storage_failed, sync_directory
from clisup.llm.workflow.records import (
    WRONG_LINE,
    Failure,
    Progress,
    Record,
    SpentRecord,
    StageFailed,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowStarted,
    as_json,
    fold,
    progress_of,
    read_line,
    to_line,
)

__all__ = ["MAX_RECORD_BYTES", "Progress", "RunningWorkflow", "Trace", "is_being_written", "now", "read_trace"]

MAX_RECORD_BYTES = 64 * 1024 * 1024
"""Longest line: a stage with all its messages. Longer ones are refused."""


class Trace:
    """Trace of one run of a workflow. All methods block, so the workflow calls them in a thread.

    Opening cuts off a line that a crash left half written. `records` are all records, old and new.
    """

    def __init__(self, path: Path, fd: int, records: list[Record], size: int) -> None:
        self.path, self.records = path, records
        self._fd, self._size, self._broken = fd, size, False

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open or create the file, with mode 0600 because it contains prompts and answers.

        Raises `UsageError` for a file in use by another process and for other files, and `WorldError` for errors of the system.
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
        """Return the workflow's progress, or None for a new file."""
        return progress_of(self.records, name=str(self.path)) if self.records else None

    def append(self, record: Record) -> None:
        """Write a line durably. Raises `WorldError` if the disk fails. No part of the line stays then."""
        line = to_line(record)
        if len(line) > MAX_RECORD_BYTES:
            raise usage_error(
                f"a record of {len(line)} bytes is too long for {self.path}: the limit is {MAX_RECORD_BYTES}",
                "return less from the stage",
            )
        if self._broken:
            raise WorldError(
                f"{self.path} takes no more lines after a failed one",
                kind="storage_failed",
                hint="run it again",
            )
        try:
            self._write(line)
            os.fsync(self._fd)
        except OSError as error:
            self._broken = True  # after a failed sync the pages on disk are unknown
            self._cut_back()
            raise _failed("write to", self.path, error) from error
        self._size += len(line)
        self.records.append(record)

    def close(self) -> None:
        """Release the file for other processes. Safe to call twice."""
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

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            pass  # the next opening cuts the torn line off


def read_trace(path: str | os.PathLike[str]) -> Progress:
    """Return the progress of a file's workflow, which may be running. Raises `UsageError` for other files."""
    file = Path(path)
    try:
        records, _ = _read(file)
    except OSError as error:
        reason = f"cannot read {file}: {(error.strerror or str(error)).lower()}"
        raise usage_error(reason, "give the file of a workflow's trace=") from error
    return progress_of(records, name=str(file))


def is_being_written(path: str | os.PathLike[str]) -> bool:
    """Return whether a process runs this workflow now."""
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
        raise usage_error(
            f"the workflow of {file} is running already", "wait for its end, or choose another file"
        ) from None


def _read(file: Path) -> tuple[list[Record], int]:
    """Return the records and the size of all whole lines. Only the last line may be torn."""
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
    """Return whether the file is a torn first line of a trace. Other files stay as they are."""
    with file.open("rb") as text:
        head = text.read(len(_HEAD))
    return _HEAD.startswith(head)


_HEAD = b'{"type":"workflow_started","at":"'


def _no_trace(file: Path, line: int) -> UsageError:
    return usage_error(
        f"{file} is not a trace of a workflow: line {line} is not a record",
        "give a file that a workflow wrote, or a new one",
    )


def _failed(what: str, file: Path, error: OSError) -> WorldError:
    return storage_failed(what, file, error, hint="repair the disk or the permissions, and run the workflow again")


_UNKNOWN = Spent(answers=1, unknown_tokens=1, unknown_usd=1)


def now() -> str:
    """Return the time: RFC 3339, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunningWorkflow:
    """Running workflow: its progress, in memory and in its trace. `resumed`: an earlier call began the workflow."""

    def __init__(self, progress: Progress, trace: Trace | None, *, resumed: bool) -> None:
        self.progress, self._trace = progress, trace
        self.resumed = resumed

    @classmethod
    @asynccontextmanager
    async def open(
        cls, name: str, stages: Sequence[str], task: Any, path: str | os.PathLike[str] | None
    ) -> AsyncIterator[RunningWorkflow]:
        """Begin or continue a trace. Raises as `Trace.open`, and `UsageError` for the trace of another workflow."""
        given = as_json(task, f"the task of {name}", "give JSON")
        trace = None if path is None else await trio.to_thread.run_sync(Trace.open, path)
        try:
            progress = trace.progress() if trace else None
            if progress is not None:
                assert trace is not None
                _check_same(progress.started, name, stages, given, trace)
            resumed = progress is not None
            running = cls(progress or await _begin(name, stages, given, trace), trace, resumed=resumed)
            await running._record_crash()
            yield running
        finally:
            if trace is not None:
                trace.close()

    async def append(self, record: Record) -> None:
        """Append a record durably, and fold it into `progress`. A cancellation waits for the end."""
        with trio.CancelScope(shield=True):
            if self._trace is not None:
                await trio.to_thread.run_sync(self._trace.append, record)
        fold(self.progress, record, "the workflow")

    async def pause(self, reason: Any, message: str) -> None:
        """Record a stop at a limit, once for the same reason."""
        paused = self.progress.paused
        if paused is None or (paused.reason, paused.message) != (reason, message):
            await self.append(WorkflowPaused(at=now(), reason=reason, message=message))

    async def complete(self, result: JsonValue) -> None:
        """Record the end."""
        if self.progress.ended is None:
            rounds = len(self.progress.rounds())
            await self.append(WorkflowCompleted(at=now(), result=result, rounds=rounds))

    async def _record_crash(self) -> None:
        """Record the failure of a stage whose process died. Its use is unknown."""
        died = self.progress.running
        if died is not None:
            error = Failure(kind="crashed", message="the process ended during the stage")
            told = [step.spent.spent() for step in self.progress.steps if step.attempt == died.attempt][-1:]
            spent = SpentRecord.of(sum(told, _UNKNOWN))
            await self.append(StageFailed(at=now(), **died.place, error=error, spent=spent))


async def _begin(name: str, stages: Sequence[str], task: JsonValue, trace: Trace | None) -> Progress:
    started = WorkflowStarted(at=now(), run_id=str(uuid.uuid4()), name=name, stages=tuple(stages), task=task)
    if trace is not None:
        await trio.to_thread.run_sync(trace.append, started)
    return Progress(started)


def _check_same(started: WorkflowStarted, name: str, stages: Sequence[str], task: JsonValue, trace: Trace) -> None:
    theirs = {"name": started.name, "stages": list(started.stages), "task": started.task}
    ours = {"name": name, "stages": list(stages), "task": task}
    for what, recorded in theirs.items():
        if recorded != ours[what]:
            raise usage_error(
                f"{trace.path} is the trace of another workflow: its {what} is different",
                "use one file for each workflow and task",
            )
