"""Small durable files: whole or missing, and readable by the owner alone."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from typing import Any

from clisup.errors import WorldError
from clisup.host.failpoints import failpoint

JSON_LIMIT = 64 * 1024 * 1024
PROBE_BYTES = 64 * 1024  # a disk that takes this many bytes counts as not full


def make_private_dir(path: str) -> None:
    """Create `path` and its parents as 0700. Raises `WorldError(storage_failed)` if that fails."""
    try:
        _make_private(path)
    except OSError as error:
        raise storage_error("make the directory", path, error) from None


def _make_private(path: str) -> None:
    """Create the directories one by one: `os.makedirs` leaves the mode of the parents to the umask."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        _make_private(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):  # another thread may have made it just now
            raise


def write_atomic(path: str, data: bytes | Iterable[bytes], *, sync: bool = True) -> None:
    """Write a file so that a reader, or a crash, finds the whole old or the whole new file.

    `data` may come in pieces. Raises `WorldError(storage_failed)`.
    """
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        failpoint("file.write")
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            for piece in (data,) if isinstance(data, bytes) else data:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        failpoint("file.rename")
        os.rename(scratch, path)
        if sync:
            sync_directory(os.path.dirname(path))
        failpoint("file.after")
    except OSError as error:
        _unlink_quietly(scratch)
        raise storage_error("write", path, error) from None


def write_once(path: str, data: bytes) -> None:
    """Write a private file unless it is there. Of two processes, the first wins. Raises `WorldError(storage_failed)`."""
    scratch = f"{path}.{os.getpid()}.tmp"
    try:
        with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
        os.link(scratch, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise storage_error("write", path, error) from None
    finally:
        _unlink_quietly(scratch)


def write_json(path: str, value: dict[str, Any], *, sync: bool = True) -> None:
    """Write one JSON object with `write_atomic`."""
    write_atomic(path, json.dumps(value, separators=(",", ":")).encode() + b"\n", sync=sync)


def probe_write(directory: str) -> None:
    """Check that a file of some size can be written to the disk of `directory`. Raises `WorldError(storage_failed)`.

    The file is removed afterwards.
    """
    path = os.path.join(directory, ".probe")
    try:
        write_atomic(path, b"\0" * PROBE_BYTES)
    finally:
        _unlink_quietly(path)


def read_small(path: str, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes. Any other file raises `OSError` and never blocks.

    The file may be one that a model's tool has written: a pipe, a device, a huge file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, f"{path} is no regular file")
        data = b""
        while piece := os.read(fd, limit + 1 - len(data)):
            data += piece
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"{path} has more than {limit} bytes")
        return data
    finally:
        os.close(fd)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None if the file is missing, empty or not a JSON object."""
    try:
        failpoint("file.read")
        with open(path, "rb") as file:
            size = min(os.fstat(file.fileno()).st_size, JSON_LIMIT)  # `read` allocates the size it is asked for
            value = json.loads(file.read(size))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    except OSError as error:
        raise storage_error("read", path, error) from None
    return value if isinstance(value, dict) else None


def sync_directory(path: str) -> None:
    """Make a rename or a new name in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def storage_error(what: str, path: str, error: OSError) -> WorldError:
    """Return the `WorldError(storage_failed)` for an OS error on a state file."""
    reason = error.strerror or type(error).__name__
    return WorldError(
        f"cannot {what} {path}, because of: {reason}",
        kind="storage_failed",
        hint="check the disk space, the permissions and the file system of the state directory",
        errno=error.errno or 0,
    )


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
