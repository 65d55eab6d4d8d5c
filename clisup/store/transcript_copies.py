"""A new transcript for a CLI, a copy or one of our own making: whole or not there, never over another file. A source is only read.

It belongs to a session that is being made. `CopyInProgress` keeps in that session's directory which file that is, so that
a daemon killed in between leaves none behind: the file has a second name until the session is there, and a file of the final
name is ours only if it is that same file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from clisup.errors import UsageError, WorldError
from clisup.host.failpoints import failpoint
from clisup.host.files import make_private_dir, read_json, storage_error, sync_directory, write_json
from clisup.store.session_dir import SessionDir

__all__ = ["CopyInProgress", "parts_of", "read_lines", "write_new", "write_session"]

LINE_LIMIT = 64 * 1024 * 1024  # a longer line comes in pieces, which are no lines to whoever reads them
_SUFFIX = ".clisup-fork"  # no CLI takes a file of this name for a transcript


def read_lines(path: str, size: int | None = None) -> Iterator[bytes]:
    """The lines of a transcript as they stand in its first `size` bytes, newlines included. Raises `WorldError(storage_failed)`."""
    left = size
    try:
        with open(path, "rb") as file:
            while line := file.readline(LINE_LIMIT if left is None else min(LINE_LIMIT, left)):
                yield line
                left = None if left is None else left - len(line)
    except OSError as error:
        raise storage_error("read", path, error) from None


def parts_of(source: str, parts: Sequence[tuple[int, int]], rewrite: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The parts of `source`, each a line, rewritten. Raises `WorldError(storage_failed)` where it cannot be read."""
    try:
        with open(source, "rb") as file:
            for start, end in parts:
                file.seek(start)
                yield rewrite(file.read(end - start))
    except OSError as error:
        raise storage_error("read", source, error) from None


def write_new(lines: Iterable[bytes], path: str) -> None:
    """Write lines to a new file of ours (0600), synced. Raises `WorldError(storage_failed)`, and what the lines raise."""
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
    directory: SessionDir, folder: str, lines: Iterable[bytes], record: Callable[[], None]
) -> CopyInProgress:
    """A transcript in `folder`, then the record of the session in `directory`: without that there is no session.

    The caller settles what it gets when the session has begun, or undoes it and removes the record. Raises
    `UsageError(session_exists)`, `WorldError(storage_failed)`: then nothing is left of it.
    """
    copy = CopyInProgress(directory)
    try:
        write_new(lines, copy.begin(folder))
        copy.publish()
        record()
        failpoint("fork.created")
    except BaseException as error:
        copy.undo()
        directory.remove()
        if isinstance(error, OSError):
            raise storage_error("write a transcript in", folder, error) from None
        raise
    return copy


class CopyInProgress:
    """The transcript of one session that is being made, from its first byte to the session's own record."""

    def __init__(self, directory: SessionDir) -> None:
        self._dir = directory.path
        self._note = os.path.join(directory.path, "fork.json")
        self._name = f"{directory.id}.jsonl"

    def begin(self, folder: str) -> str:
        """Say what is about to be written there; gives the path for it. A missing folder is made. Raises `WorldError(storage_failed)`."""
        make_private_dir(self._dir)
        target = os.path.join(folder, self._name)
        write_json(self._note, {"transcript": target, "made_folder": not os.path.isdir(folder)})
        make_private_dir(folder)
        failpoint("fork.begun")
        return target + _SUFFIX

    def publish(self) -> None:
        """Give the transcript its name. Raises `UsageError(session_exists)` where there is a file of it, `WorldError(storage_failed)`."""
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
        """The session is there: the transcript is its own, under its one name."""
        if (target := self._target()) is not None:
            _unlink(target + _SUFFIX)
            _unlink(self._note)

    def undo(self) -> None:
        """The session did not come to be: nothing of the transcript stays."""
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
        """None where nothing is in progress. What names another file than ours is no word of ours."""
        with suppress(WorldError):
            target = (read_json(self._note) or {}).get("transcript")
            if isinstance(target, str) and os.path.basename(target) == self._name:
                return target
        return None


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
