"""Locks between processes: POSIX record locks, which name their holder, and the lock of a state directory.

A record lock lasts as long as its process. A process opens a lock file once and never again: closing any descriptor of
it would drop the lock (fcntl(2)).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Mapping

from clisup.host import clock
from clisup.host.files import storage_error

STATE_LOCK = "daemon.lock"
"""Name of the lock file in a state directory."""

HANDOVER_S = 1.0
_PAUSE_S = 0.01
_NO_DIRECTORY_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # NFS and others
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
        return _same(self.path, self._fd)

    def fileno(self) -> int:
        """Return the descriptor, for a successor in this process."""
        assert self._fd is not None, "a lock is handed on while it is held"
        return self._fd

    def release(self) -> None:
        """Release the lock. A second call is safe."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class StateLock:
    """Lock of a state directory: one process serves or cleans it.

    The lock is on the directory itself, by flock(2): a file in it can be removed under its holder, the directory cannot
    without its files. `daemon.lock` in the directory tells other programs who the holder is. NFS locks no directories:
    there the file alone counts. `inherited` are descriptors of a lock that this process held before a re-execution.
    """

    def __init__(self, directory: str, inherited: Mapping[str, int] | None = None) -> None:
        old = inherited or {}
        self.path = os.path.join(directory, STATE_LOCK)
        self._directory, self._inherited = directory, old.get("directory")
        self._file = FileLock(self.path, old.get("state"))
        self._fd: int | None = None

    def acquire(self) -> int | None:
        """Take the lock. Return None, or the holder's pid (-1 if it is unknown). Raises `WorldError(storage_failed)`.

        A child of a killed daemon has the lock until it executes its own program. So the call waits `HANDOVER_S` at most
        while no process has locked the file.
        """
        until = clock.monotonic() + HANDOVER_S
        while not self._take_directory():
            if (holder := lock_holder(self.path)) is not None:
                return holder
            if clock.monotonic() > until:
                return _directory_holder(self._directory)
            clock.pause(_PAUSE_S)
        holder = self._file.acquire()
        if holder is not None:
            self._release_directory()
        return holder

    def _take_directory(self) -> bool:
        """Lock the directory, and tell whether no other process has done so."""
        try:
            fd = self._inherited or os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error("open the directory", self._directory, error) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                os.close(fd)
                return False
            if error.errno not in _NO_DIRECTORY_LOCKS:
                os.close(fd)
                raise storage_error("lock the directory", self._directory, error) from None
        self._fd = fd
        return True

    def write(self, text: str) -> None:
        """Write the holder into `daemon.lock`, as `FileLock.write`."""
        self._file.write(text)

    def is_in_place(self) -> bool:
        """Tell whether `daemon.lock` is still the locked file. Raises `WorldError(storage_failed)`."""
        return self._file.is_in_place()

    def renew(self) -> int | None:
        """Lock the file that is in place now. Return None, or the pid of another holder: then nothing changes."""
        fresh = FileLock(self.path)
        holder = fresh.acquire()
        if holder is None:
            self._file.release()
            self._file = fresh
        return holder

    def descriptors(self) -> dict[str, int]:
        """Return the descriptors for a successor in this process."""
        assert self._fd is not None, "a lock is handed on while it is held"
        return {"state": self._file.fileno(), "directory": self._fd}

    def release(self) -> None:
        """Release the lock. A second call is safe."""
        self._file.release()
        self._release_directory()

    def _release_directory(self) -> None:
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


def _same(path: str, fd: int) -> bool:
    """Tell whether `path` still leads to the open file. Raises `WorldError(storage_failed)`."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_error("look at the lock", path, error) from None


def _directory_holder(path: str) -> int:
    """Return the pid of the process that has locked a directory, by proc(5), or -1 if it is not found."""
    info = os.stat(path)
    place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    with open("/proc/locks", encoding="ascii", errors="replace") as file:
        for line in file:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place:
                return int(fields[4])
    return -1


def _holder(fd: int) -> int | None:
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else pid
