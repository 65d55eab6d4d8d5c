"""An HTTP server on the loopback, in a thread: what comes goes to `take`; it can be told to stay silent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class LoopbackServer:
    """`answer` is the status of the next answers. While `silent` is set there are none."""

    takes_get = False

    def __init__(self, answer: int = 200) -> None:
        self.answer = answer
        self.silent = threading.Event()
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.take(self)

            if self.takes_get:
                do_GET = do_POST

            def log_message(self, *_args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_args: object) -> None:  # a daemon that is killed hangs up
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def take(self, request: BaseHTTPRequestHandler) -> None:
        """Keep a request, and answer it."""
        raise NotImplementedError

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
