"""Files that a crash leaves whole: conversations, working memories, traces of workflows."""

from __future__ import annotations

import os
from pathlib import Path

from clisup.errors import UsageError, WorldError


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file (0600) durably. Readers and crashes find the old or the new content, whole.

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
    """Make new names of a directory durable. Raises `OSError`."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_bounded(path: Path, limit: int) -> bytes | None:
    """Return the content of a file, or None without a file.

    Raises `WorldError` (`storage_failed`), and `UsageError` for a file of more than `limit` bytes.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_failed("read", path, error) from None
    if len(data) > limit:
        raise UsageError(f"{path} is larger than {limit} bytes", hint="check that this is the right file")
    return data


def open_lock(path: Path) -> int:
    """Open or create a lock file (0600) and return its descriptor. Raises `WorldError` (`storage_failed`)."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise storage_failed("open", path, error) from None


def storage_failed(what: str, path: Path, error: OSError, *, hint: str = "") -> WorldError:
    """Return the error for a failed operation on a file."""
    reason = (error.strerror or type(error).__name__).lower()
    return WorldError(
        f"failed to {what} {path}: {reason}",
        kind="storage_failed",
        hint=hint or "check the disk and the permissions",
    )
