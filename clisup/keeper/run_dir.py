"""Run directory of a keeper: the lock, the records and the control socket."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from typing import Any

from clisup.keeper.system import allocate, write_all

RESERVED = 32 * 1024  # bytes on disk, so that the exit record fits on a full disk


class StartRefused(Exception):
    """The keeper exits before the fork. `status` is the exit status, `answer` the line on stdout."""

    def __init__(self, status: int, **answer: Any) -> None:
        self.status, self.answer = status, answer


class RunDirectory:
    """Open run directory. All paths are relative to the descriptor, so that no process can swap the directory."""

    def __init__(self, path: str) -> None:
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StartRefused(
                74, kind="storage_failed", errno=error.errno, error="cannot open the run directory"
            ) from None

    @property
    def removed(self) -> bool:
        """Tell whether the directory was deleted."""
        return os.fstat(self.fd).st_nlink == 0

    def open(self, name: str, flags: int) -> int:
        """Open a file of the directory, and return the descriptor."""
        return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file, if the file exists."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.fd)

    def lock(self) -> None:
        """Take the run. Raises `StartRefused` if another keeper has or had the run.

        The descriptor stays open, and no other code opens the file: to close any descriptor of the file drops the lock.
        """
        lock = self.open("keeper.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StartRefused(75, error="locked") from None
        if self._size("exit.json"):
            raise StartRefused(75, error="exited")
        # A keeper was killed and the CLI may have run: another run needs another number.
        if self._size("start.json") is not None:
            raise StartRefused(75, error="started")

    def _size(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        except OSError:
            return None

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Replace a whole file. Nothing is synced: a power loss may leave the file empty, and ends the run anyway."""
        fd = self.open(_draft_of(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.commit(fd, name, record)

    def reserve(self, name: str) -> int:
        """Reserve disk space for a later `commit`, which then needs no new block."""
        fd = self.open(_draft_of(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        allocate(fd, RESERVED)
        return fd

    def commit(self, fd: int, name: str, record: dict[str, Any]) -> None:
        """Write a record over the draft `fd`, and rename the draft to `name`."""
        data = json.dumps(record).encode() + b"\n"
        os.lseek(fd, 0, 0)
        write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.rename(_draft_of(name), name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        os.close(fd)

    def listen(self) -> socket.socket:
        """Create the control socket with mode 0600. The path through /proc is always short enough for a socket."""
        self.unlink("ctl.sock")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        mask = os.umask(0o177)
        server.bind(f"/proc/self/fd/{self.fd}/ctl.sock")
        os.umask(mask)
        server.listen(16)
        return server


def _draft_of(name: str) -> str:
    """Return the draft name of a file. With the pid, `clisup gc` can tell whether the writer is gone."""
    return f"{name}.{os.getpid()}.tmp"
