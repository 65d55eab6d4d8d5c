"""Socket of systemd's journal: a datagram for each entry, or a sealed memory file for a large entry. It never waits.

The protocol is systemd.io/JOURNAL_NATIVE_PROTOCOL; programs in C use sd_journal_send(3).
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Mapping

__all__ = ["JOURNAL_SOCKET", "JournalSocket", "is_journal_stream"]

JOURNAL_SOCKET = "/run/systemd/journal/socket"
SEND_BUFFER = 8 * 1024 * 1024  # as libsystemd requests; the kernel grants what net.core.wmem_max allows
_TOO_LARGE = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class JournalSocket:
    """Sender of entries. The journal may go away or come back at any time: each entry is addressed separately."""

    def __init__(self, path: str = JOURNAL_SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    def send(self, entry: bytes) -> bool:
        """Send an entry.

        Return False if the journal is missing or its socket is full. The call never waits and never raises.
        """
        try:
            self._socket.sendto(entry, self._path)
        except OSError as error:
            return error.errno in _TOO_LARGE and self._send_file(entry)
        return True

    def _send_file(self, entry: bytes) -> bool:
        """Send an empty datagram with a sealed memory file: the journal refuses a file that can still be changed."""
        try:
            fd = os.memfd_create("clisup-log-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return False
        try:
            view = memoryview(entry)
            while view:
                view = view[os.write(fd, view) :]
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))]
            self._socket.sendmsg([], rights, 0, self._path)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def is_journal_stream(env: Mapping[str, str], fd: int) -> bool:
    """Tell whether this descriptor goes to the journal.

    `$JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
    """
    try:
        there = os.fstat(fd)
    except OSError:
        return False
    return env.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"
