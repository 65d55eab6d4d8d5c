"""Files of the model layer that a crash leaves whole: a conversation, a working memory, a workflow's trace."""

from __future__ import annotations

import os
from pathlib import Path

from clisup.errors import UsageError, WorldError

__all__ = ["open_lock", "read_bounded", "storage_failed", "sync_directory", "write_durably"]


def write_durably(path: Path, data: bytes) -> None:
    """Write a file (0600) so that a reader, or a crash, finds the old or the new whole; on the disk when it returns.

    Raises `WorldError` of kind `storage_failed`.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        try:
            fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.rename(scratch, path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except OSError as error:
        raise storage_failed("write", path, error) from None


def sync_directory(directory: Path) -> None:
    """What was made or renamed in it is on the disk when this returns. Raises `OSError`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_bounded(path: Path, limit: int) -> bytes | None:
    """What the file holds; None where there is none. Raises `WorldError` (`storage_failed`), and `UsageError` where it is larger
    than `limit` bytes."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_failed("read", path, error) from None
    if len(data) > limit:
        raise UsageError(f"cannot read {path}, because it is larger than {limit} bytes", hint="is it the right file?")
    return data


def open_lock(path: Path) -> int:
    """A file descriptor to lock; the file is made (0600) where there is none. Raises `WorldError` (`storage_failed`)."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_failed("open", path, error) from None


def storage_failed(what: str, path: Path, error: OSError, *, hint: str = "") -> WorldError:
    """An OS error on a file of ours, in words."""
    reason = (error.strerror or type(error).__name__).lower()
    return WorldError(
        f"cannot {what} {path}, because {reason}",
        kind="storage_failed",
        hint=hint or "look at the disk and its permissions",
    )
