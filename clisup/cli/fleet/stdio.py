"""`clisup socket --stdio`: stdin and stdout as a connection to the daemon. `--on` runs this on a box through ssh."""

from __future__ import annotations

import os
import socket
import threading

from clisup.client.raw import RawClient

__all__ = ["carry"]

_CHUNK = 64 * 1024


def carry(path: str) -> int:
    """Copy both ways until the daemon ends the connection. Raises `ClisupError` if no daemon answers."""
    client = RawClient(path, "clisup-stdio")
    client.dial()
    sock = client.take_socket()
    threading.Thread(target=_send, args=(sock,), daemon=True).start()
    while data := _received(sock):
        view = memoryview(data)
        while view:
            view = view[os.write(1, view) :]
    return 0


def _send(sock: socket.socket) -> None:
    """Copy stdin to the daemon. At its end the daemon sends its last answers, and closes."""
    try:
        while data := os.read(0, _CHUNK):
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the daemon has closed the connection, which the other direction reports


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(_CHUNK)
    except OSError:
        return b""
