"""Transcripts of sessions: the CLI's own, which clisup only reads, and those that clisup writes for a fork or a history."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.files import make_private_dir, open_regular, read_json, storage_error, sync_directory, write_json
from clisup.store.session_dir import SessionDir

__all__ = [
    "READ_LIMIT",
    "CopyInProgress",
    "Mark",
    "appended",
    "find_transcript",
    "parts_of",
    "read_lines",
    "tail_since",
    "transcript_exists",
    "transcript_mark",
    "transcript_size",
    "write_new",
    "write_session",
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


def tail_since(pattern: str | None, moment: str, limit: int) -> bytes:
    """Return the last `limit` bytes of the transcript, or nothing if no program has written to it since `moment` (RFC 3339)."""
    path = find_transcript(pattern)
    try:
        found = os.stat(path) if path is not None else None
        if path is None or found is None or found.st_mtime < datetime.fromisoformat(moment).timestamp():
            return b""
        with open(open_regular(path, follow=True), "rb") as file:
            file.seek(max(0, found.st_size - limit))
            return file.read(limit)
    except OSError:
        return b""


def appended(pattern: str | None, after: int) -> bytes | None:
    """Return at most `READ_LIMIT` bytes after the byte `after`, or None if there is no transcript. Raises `OSError`."""
    path = find_transcript(pattern)
    if path is None:
        return None
    with open(open_regular(path, follow=True), "rb") as file:
        file.seek(after)
        return file.read(READ_LIMIT)


def find_transcript(pattern: str | None) -> str | None:
    """Return the path of the first file that matches the adapter's pattern, or None."""
    return None if pattern is None else next(glob.iglob(pattern), None)


LINE_LIMIT = 64 * 1024 * 1024  # a longer line is read in pieces, and a reader ignores the pieces
_SUFFIX = ".clisup-fork"  # no CLI takes a file of this name for a transcript


def read_lines(path: str, size: int | None = None) -> Iterator[bytes]:
    """Yield the lines in the first `size` bytes of a transcript, newlines included.

    Raises `WorldError(storage_failed)`.
    """
    left = size
    try:
        with open(open_regular(path, follow=True), "rb") as file:
            while line := file.readline(LINE_LIMIT if left is None else min(LINE_LIMIT, left)):
                yield line
                left = None if left is None else left - len(line)
    except OSError as error:
        raise storage_error("read", path, error) from None


def parts_of(source: str, parts: Sequence[tuple[int, int]], rewrite: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the parts of `source`, each a line, rewritten.

    Raises `WorldError(storage_failed)` if `source` cannot be read.
    """
    try:
        with open(open_regular(source, follow=True), "rb") as file:
            for start, end in parts:
                file.seek(start)
                yield rewrite(file.read(end - start))
    except OSError as error:
        raise storage_error("read", source, error) from None


def write_new(lines: Iterable[bytes], path: str) -> None:
    """Write lines to a new file of mode 0600 and sync it.

    Raises `WorldError(storage_failed)` and every error of `lines`.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as target:
            target.writelines(lines)
            target.flush()
            failpoint("fork.copied")
            os.fsync(target.fileno())
    except OSError as error:
        raise storage_error("write", path, error) from None


def write_session(
    directory: SessionDir, target: str, lines: Iterable[bytes], record: Callable[[], None]
) -> CopyInProgress:
    """Write the transcript `target`, then the record of the session in `directory`.

    Without the record no session exists.

    The caller settles the returned copy when the session has begun. A caller that gives up undoes the copy and removes
    the record. Raises `UsageError(session_exists)` or `WorldError(storage_failed)`; nothing of the session is then
    left.
    """
    copy = CopyInProgress(directory)
    try:
        write_new(lines, copy.begin(target))
        copy.publish()
        record()
        failpoint("fork.created")
    except BaseException as error:
        copy.undo()
        directory.remove()
        if isinstance(error, OSError):
            raise storage_error("write", target, error) from None
        raise
    return copy


class CopyInProgress:
    """Transcript of one session that is being created, from the first byte to the record of the session."""

    def __init__(self, directory: SessionDir) -> None:
        self._dir = directory.path
        self._note = os.path.join(directory.path, "fork.json")
        self._name = f"{directory.id}.jsonl"

    def begin(self, target: str) -> str:
        """Record the planned transcript and return the path to write. Raises `WorldError(storage_failed)`.

        The name of the transcript ends with the id of the session and `.jsonl`. A missing folder is created.
        """
        make_private_dir(self._dir)
        folder = os.path.dirname(target)
        write_json(self._note, {"transcript": target, "made_folder": not os.path.isdir(folder)})
        make_private_dir(folder)
        failpoint("fork.begun")
        return target + _SUFFIX

    def publish(self) -> None:
        """Give the transcript its final name.

        Raises `UsageError(session_exists)` if a file of that name exists, and `WorldError(storage_failed)`.
        """
        target = self._target()
        assert target is not None, "begin comes first"
        try:
            os.link(target + _SUFFIX, target, follow_symlinks=False)
            sync_directory(os.path.dirname(target))
        except FileExistsError:
            raise UsageError(
                f"cannot open session {self._name.removesuffix('.jsonl')}, because the CLI has a transcript of this id",
                kind="session_exists",
                hint="choose another id",
            ) from None
        except OSError as error:
            raise storage_error("write", target, error) from None
        failpoint("fork.published")

    def settle(self) -> None:
        """Remove the second name of the transcript: the session exists now and owns the transcript."""
        if (target := self._target()) is not None:
            _unlink(target + _SUFFIX)
            _unlink(self._note)

    def undo(self) -> None:
        """Remove the transcript and its record: the session was not created."""
        if (target := self._target()) is None:
            return
        made = (read_json(self._note) or {}).get("made_folder") is True
        with suppress(OSError):
            if os.path.samestat(os.lstat(target), os.lstat(target + _SUFFIX)):
                os.unlink(target)
        _unlink(target + _SUFFIX)
        if made:
            with suppress(OSError):  # somebody else has written there meanwhile
                os.rmdir(os.path.dirname(target))
        _unlink(self._note)

    def _target(self) -> str | None:
        """Return the path of the transcript in progress, or None if there is none.

        A record that names a file of another session is ignored: clisup did not write that record.
        """
        with suppress(WorldError):
            target = (read_json(self._note) or {}).get("transcript")
            if isinstance(target, str) and os.path.basename(target).endswith(self._name):
                return target
        return None


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
