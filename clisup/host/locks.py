"""POSIX record locks: a lock lasts as long as its process and names its holder.

A process opens a lock file once and never again: closing any descriptor of it would drop the lock (fcntl(2)).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct

from clisup.host.files import storage_error

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of x86-64 and arm64 Linux: type, whence, start, len, pid


class FileLock:
    """Exclusive lock on a file. `acquire` returns None, or the pid of the process that holds the lock."""

    def __init__(self, path: str, inherited: int | None = None) -> None:
        """Store the path.

        `inherited` is the descriptor of a lock that this process already held before a re-execution.
        """
        self.path = path
        self._fd: int | None = None
        self._inherited = inherited

    def acquire(self) -> int | None:
        """Take the lock without waiting. Return None, or the holder's pid if another process holds the lock.

        Raises `WorldError(storage_failed)` if the file cannot be opened.
        """
        try:
            fd = self._inherited or _open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error("open the lock", self.path, error) from None
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(fd) or -1
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return holder
            raise storage_error("lock", self.path, error) from None
        self._fd = fd
        return None

    def write(self, text: str) -> None:
        """Write the holder into the file, for people.

        Raises `WorldError(storage_failed)`, also for a file with a second name.
        """
        assert self._fd is not None, "a lock is written while it is held"
        if os.fstat(self._fd).st_nlink > 1:
            error = OSError(errno.EMLINK, "it is a hard link to some other file: remove it")
            raise storage_error("write the lock", self.path, error)
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, text.encode(), 0)
        except OSError as error:
            raise storage_error("write the lock", self.path, error) from None

    def is_in_place(self) -> bool:
        """Tell whether the file is still the locked file: somebody may have removed or replaced it.

        Raises `WorldError(storage_failed)`.
        """
        assert self._fd is not None, "a lock is looked after while it is held"
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("look at the lock", self.path, error) from None

    def fileno(self) -> int:
        """Return the descriptor, for a successor in this process."""
        assert self._fd is not None, "a lock is handed on while it is held"
        return self._fd

    def release(self) -> None:
        """Release the lock. A second call is safe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def lock_holder(path: str) -> int | None:
    """Return the pid that holds `path`'s lock, or None. Never call this for a lock of this process (see above)."""
    try:
        # The question needs no right to write: the disk may be read-only by now.
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _holder(fd)
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    """Open a lock file, and refuse a file that somebody else may have put in its place. Raises `OSError`."""
    strange = OSError(errno.EPERM, "it is no regular file of this user's: remove it", path)
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise (strange if error.errno == errno.ELOOP else error) from None
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid in (os.geteuid(), 0):
        return fd
    os.close(fd)
    raise strange


def _holder(fd: int) -> int | None:
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else pid
