"""Control socket of a keeper: one connection of JSON lines, to one daemon at a time."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any

from clisup.keeper.spec import parse_object
from clisup.keeper.system import BLOCK, came_from

LINE_MAX = 80 * 1024 * 1024  # a line carries a stdin message
OUTGOING_MAX = 1024 * 1024  # the keeper disconnects a daemon that does not read; the daemon may connect again
WINDOW_MAX = 64  # limit of unacknowledged `grew` pushes, whatever the daemon requests


class ControlConnection:
    """Connection of newline-delimited JSON. No method waits for the peer."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock
        self.greeted = False
        self.closed_at = time.monotonic()  # the start of the lease, once the connection is closed
        self._hung_up = False  # the peer reads no more, but its earlier messages are still to be read
        self._incoming = bytearray()
        self._outgoing = bytearray()

    @property
    def open(self) -> bool:
        return self._sock is not None

    @property
    def flushed(self) -> bool:
        """Tell whether nothing waits for the peer to read."""
        return not self._outgoing

    def fileno(self) -> int:
        """Return the descriptor, -1 if closed."""
        return self._sock.fileno() if self._sock is not None else -1

    def read(self) -> list[dict[str, Any]]:
        """Return the whole messages that arrived. Close the connection at EOF. Raises `ValueError` for an invalid message."""
        if self._sock is None:
            return []
        try:
            data = self._sock.recv(BLOCK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.close()
            return []
        *lines, rest = data.split(b"\n")
        if not lines:
            self._incoming += rest
            if len(self._incoming) > LINE_MAX:
                raise ValueError("line too long")
            return []
        lines[0] = bytes(self._incoming) + lines[0]
        self._incoming = bytearray(rest)
        return [parse_object(line) for line in lines]

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, as far as the peer takes bytes now. `flush` sends the rest."""
        if self._sock is not None and not self._hung_up:
            self._outgoing += json.dumps(message).encode() + b"\n"
            self.flush()

    def flush(self) -> None:
        """Send the waiting bytes. Close the connection if more than `OUTGOING_MAX` bytes still wait."""
        if self._sock is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            if len(self._outgoing) > OUTGOING_MAX:
                self.close()
        except OSError:  # not closed yet: the last message of a killed daemon may be the order to end
            self._hung_up = True
            self._outgoing.clear()

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
            self.closed_at = time.monotonic()
        self._outgoing.clear()


class ControlSocket:
    """Listening socket, with the daemon's connection and the pushes to the daemon."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.connection = ControlConnection()
        self.window = 1
        self._unseen = 0  # `grew` pushes that the daemon has not acknowledged
        self._reported = (0, 0)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self, run_pids: tuple[int, ...]) -> None:
        """Accept a daemon. The new connection replaces the previous one: at most one daemon gets answers."""
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        if not _may_connect(sock, run_pids):
            sock.close()
            return
        self.connection.close()
        self.connection = ControlConnection(sock)

    def greet(self, window: Any, sizes: tuple[int, int]) -> None:
        """Begin to push. A daemon from before `window` has one outstanding push."""
        self.window = min(max(window, 1), WINDOW_MAX) if type(window) is int else 1
        self.connection.greeted = True
        self._unseen, self._reported = 0, sizes

    def push(self, message: dict[str, Any]) -> None:
        """Send an unrequested message, if the daemon said hello."""
        if self.connection.greeted:
            self.connection.send(message)

    def acknowledge(self, sizes: tuple[int, int]) -> None:
        """Count the daemon's `seen`, and report growth since."""
        self._unseen = 0
        self.report_growth(sizes)

    def report_growth(self, sizes: tuple[int, int]) -> None:
        """Push the sizes of the spools, up to a window ahead of the daemon's `seen`. `seen` makes up for omitted pushes."""
        if self.connection.greeted and self._unseen < self.window and sizes != self._reported:
            self._unseen, self._reported = self._unseen + 1, sizes
            self.connection.send({"push": "grew", "out": sizes[0], "err": sizes[1]})


def _may_connect(sock: socket.socket, run_pids: tuple[int, ...]) -> bool:
    """Allow this user and root, but no process of the run: a tool of the model could feed or end the CLI."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid in (0, os.getuid()) and not came_from(pid, run_pids)
