"""Log file of a daemon without a terminal: appended to, bounded by rotation, and the daemon's stderr once it is ready."""

from __future__ import annotations

import errno
import os
import stat
import traceback
from contextlib import suppress

from clisup.host.files import storage_error

LOG_FILE = "daemon.log"
"""Name of the file in the state directory."""

_STDERR = 2


class LogFile:
    """Receiver of rendered lines, as `clisup.host.log.Sender`: the file at a path, which only this daemon writes.

    The lines follow the path: after somebody has renamed or removed the file, or put another there, the next line goes to the
    path. So `logrotate` needs no signal.

    A daemon starts with the stderr of its caller, who reads why a start fails. `take_stderr` replaces that stderr by the
    file, so that a traceback of Python itself goes there, too.
    """

    def __init__(self, path: str, limit: int) -> None:
        """Open the file. Raises `WorldError(storage_failed)`.

        A file of `limit` bytes is renamed to `<name>.1`, in place of the one before. Both together have twice this size.
        """
        self.path = path
        self.limit = limit
        self._torn = False
        self._is_stderr = False
        try:
            self._fd = open_log(path)
        except OSError as error:
            raise storage_error("open the log", path, error) from None

    def send(self, line: bytes) -> bool:
        """Append a line, and return whether all of it was written. After a torn line the next starts on its own line."""
        data = (b"\n" if self._torn else b"") + line + b"\n"
        try:
            if not self._is_at_path():
                with suppress(OSError):  # something else is there: the old file still takes lines, up to the limit
                    self._open_again()
            if (size := os.fstat(self._fd).st_size) and size + len(data) > self.limit:
                if not self._is_at_path():
                    return False
                os.replace(self.path, f"{self.path}.1")
                self._open_again()
            written = os.write(self._fd, data)
        except OSError:  # a full or a broken disk
            return False
        self._torn = written != len(data)
        return not self._torn

    def take_stderr(self) -> None:
        """Let everything that this process writes to stderr go to the file."""
        self._is_stderr = True
        os.dup2(self._fd, _STDERR)

    def _is_at_path(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _open_again(self) -> None:
        fd = open_log(self.path)
        os.close(self._fd)
        self._fd, self._torn = fd, False
        if self._is_stderr:
            self.take_stderr()


def open_log(path: str) -> int:
    """Open a log file to append to it. Raises `OSError`, also for a file that is no regular file of this user."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
        return fd
    os.close(fd)
    raise OSError(errno.EPERM, "it is no regular file of this user: remove it", path)


def traceback_of(error: BaseException) -> str:
    """Return the places and the type of an unexpected exception, of a group that of its first member. Its text may quote a prompt."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    places = [
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} at {', '.join(places)}"
