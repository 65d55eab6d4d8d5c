"""What journald is to a client: a datagram socket that takes entries, as payload or in a sealed memory file."""

from __future__ import annotations

import array
import fcntl
import os
import socket
from pathlib import Path

_ALL_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def parse_entry(data: bytes) -> dict[str, str]:
    """Both forms of a field, as journald reads them; anything else is an error."""
    fields: dict[str, str] = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, mark, value = line.partition(b"=")
        if not mark:
            size = int.from_bytes(rest[:8], "little")
            value, end, data = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n" and len(value) == size, "a binary field that does not end where it says"
        else:
            data = rest
        fields[name.decode()] = value.decode()
    return fields


class FakeJournal:
    """Takes entries while it is open. `files` counts those that came in a memory file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.files = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def entries(self) -> list[dict[str, str]]:
        """All that has come since the last call."""
        found = []
        while True:
            try:
                data, rights, flags, _ = self.socket.recvmsg(1 << 20, socket.CMSG_LEN(16))
            except BlockingIOError:
                return found
            assert not flags & socket.MSG_TRUNC
            found.append(parse_entry(self._file(rights) if rights else data))
            assert not (rights and data), "journald takes a payload or a file, never both"

    def _file(self, rights: list[tuple[int, int, bytes]]) -> bytes:
        ((level, kind, data),) = rights
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        (fd,) = array.array("i", data)
        try:
            assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == _ALL_SEALS, "a file that somebody could still change"
            self.files += 1
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        self.socket.close()
        os.unlink(self.path)
