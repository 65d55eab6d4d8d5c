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
from clisup.host.shortage import is_shortage, overloaded

FILE_LIMIT = 64 * 1024 * 1024
"""Largest file in bytes that is read as a whole: prompts, and what a client gave with a session."""
RECORD_LIMIT = 16 * 1024 * 1024
"""Largest record in bytes that the daemon or a keeper writes for itself."""


class OddFileError(OSError):
    """Something else in the place of a regular file, or a file that is too large."""


_ODD = "it is no regular file"
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
        fd = _create(scratch)
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
        with open(_create(scratch), "wb") as file:
            file.write(data)
        os.link(scratch, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise storage_error("write", path, error) from None
    finally:
        _unlink_quietly(scratch)


def _create(scratch: str) -> int:
    """Create a file, in place of whatever has the name: the rest of a killed daemon, or a pipe that somebody put there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(scratch, flags, 0o600)
    except FileExistsError:
        os.unlink(scratch)
        return os.open(scratch, flags, 0o600)


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


def open_regular(path: str, *, follow: bool = False) -> int:
    """Open a file to read it, and return its descriptor. Raises `OSError`: `OddFileError` for anything but a regular file.

    A process of a CLI can put a pipe, a device or a link in the place of any file of ours, and a pipe must not block the
    daemon. `follow` permits a link at the end of the path, for files that are not ours.
    """
    try:
        link = 0 if follow else os.O_NOFOLLOW
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | link)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise OddFileError(errno.EPERM, _ODD, path) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OddFileError(errno.EPERM, _ODD, path)


def read_file(path: str, limit: int = FILE_LIMIT, *, follow: bool = False) -> bytes:
    """Return the content of a regular file. Raises `OSError`: `OddFileError` for a file of more than `limit` bytes."""
    failpoint("file.read")
    with open(open_regular(path, follow=follow), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OddFileError(errno.EFBIG, f"it has {size} bytes, and {limit} are the most", path)
        return file.read(size)


def read_optional(path: str, limit: int = FILE_LIMIT) -> bytes | None:
    """Return the content of a regular file of at most `limit` bytes, else None. Raises `WorldError(storage_failed)`."""
    try:
        return read_file(path, limit)
    except (FileNotFoundError, NotADirectoryError, OddFileError):
        return None
    except OSError as error:
        raise storage_error("read", path, error) from None


def read_json(path: str, limit: int = FILE_LIMIT) -> dict[str, Any] | None:
    """Return the JSON object in `path`, or None if the file is missing, empty or not a JSON object.

    Raises `WorldError(storage_failed)` for a file of more than `limit` bytes, and for anything but a regular file.
    """
    try:
        value = json.loads(read_file(path, limit))
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
    """Return the `WorldError(storage_failed)` for an OS error on a state file, or `overloaded` for a shortage."""
    if is_shortage(error.errno):
        return overloaded(f"{what} {path}", error)
    reason = error.strerror or type(error).__name__
    hint = "check the disk space, the permissions and the file system of the state directory"
    if error.errno == errno.EFBIG and error.filename is None:  # of a write: the kernel names no file
        reason, hint = f"{reason} (RLIMIT_FSIZE)", "raise the limit of file sizes: ulimit -f unlimited, LimitFSIZE="
    return WorldError(
        f"cannot {what} {path}, because of: {reason}",
        kind="storage_failed",
        hint=hint,
        errno=error.errno or 0,
    )


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
