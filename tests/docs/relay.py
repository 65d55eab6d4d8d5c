"""A Unix socket that leads to another one, byte for byte, both half-closes included: what `ssh -L a.sock:b.sock` does."""

from __future__ import annotations

import contextlib
import os
import socket
import threading


class Relay:
    """Listens at `local` until it is closed; each connection gets one of its own to `remote`."""

    def __init__(self, local: str, remote: str) -> None:
        self._local, self._remote = local, remote
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(local)
        os.chmod(local, 0o600)
        self._listener.listen()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """As when the tunnel breaks: nobody new, and those that are connected are hung up on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        os.unlink(self._local)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(self._remote)
            except OSError:
                near.close()
                far.close()
                continue
            self._open |= {near, far}
            left = [2]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, sink, left), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        left[0] -= 1
        if not left[0]:
            for end in (source, sink):
                self._open.discard(end)
                end.close()
