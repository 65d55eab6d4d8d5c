"""What journald is to a client: a datagram socket that takes entries."""

from __future__ import annotations

import os
import socket
from pathlib import Path


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
    """Receiver of entries while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def entries(self) -> list[dict[str, str]]:
        """All that has come since the last call."""
        found = []
        while True:
            try:
                data, _, flags, _ = self.socket.recvmsg(1 << 20)
            except BlockingIOError:
                return found
            assert not flags & socket.MSG_TRUNC
            found.append(parse_entry(data))

    def close(self) -> None:
        self.socket.close()
        os.unlink(self.path)
