"""Targets: raw bytes to the pages and the gateway, each served by a thread of this process on loopback, without a daemon.

Each input has a connection of its own. Afterwards a good client beside it must get its answer, and no fault is noted.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from http.client import HTTPConnection
from typing import Any, NoReturn

import trio

from clisup.doors.gateway.app import make_gateway
from clisup.doors.gateway.metrics import GatewayMetrics
from clisup.doors.gateway.sessions import GatewaySessions
from clisup.doors.gateway.settings import GatewaySettings
from clisup.http import connection, link
from clisup.http.addresses import Addresses, place_of
from clisup.http.connections import HttpConnections
from clisup.http.link import daemon_away
from clisup.web.access.tokens import TokenBook
from clisup.web.app import make_app
from clisup.web.boxes import BoxLinks
from clisup.web.link import PageLink
from clisup.web.push.delivery import PushSender, push_key
from tests.fuzz.promises import cut, promise

__all__ = ["gateway", "pages"]

PATIENCE_S = 30.0
TOKEN = "clisup-" + "f" * 40
_PIECES = 8


async def _away() -> NoReturn:
    raise daemon_away()


class _Notes(list[str]):
    """Faults. It takes the place of a log, too."""

    def write(self, text: str) -> None:
        if "fault: " in text:
            self.append(text)


class Door:
    """Server of one application in a thread. `names` are the words that inputs may use."""

    def __init__(self, make: Callable[[Addresses, _Notes], tuple[Any, str]], good: str) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.notes, self._good = listener.getsockname()[1], _Notes(), good
        app, cookie = make(place_of("127.0.0.1", self.port), self.notes)
        form = hmac.new(cookie.encode(), b"clisup web form", hashlib.sha256).hexdigest()
        host = f"127.0.0.1:{self.port}"
        self._words = {"@HOST@": host, "@COOKIE@": cookie, "@FORM@": form, "@TOKEN@": TOKEN}
        connections = HttpConnections(app, listener, None, self.notes.append)
        self.thread = threading.Thread(target=lambda: trio.run(connections.run), daemon=True)
        self.thread.start()

    def play(self, data: bytes, salt: int) -> None:
        """Send an input, see the connection end, and ask beside it."""
        for word, value in self._words.items():
            data = data.replace(word.encode(), value.encode())
        # The server may end the connection before all was sent.
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S) as client, suppress(OSError):
            for piece in cut(data, salt | 1)[:_PIECES]:
                client.sendall(piece)
            self._read(client, salt)
        self.check()

    def _read(self, client: socket.socket, salt: int) -> None:
        """Leave at once, or end our side at once or after a while and read the rest."""
        if salt % 3 == 0:
            return
        if salt % 3 == 1:
            client.settimeout(0.01)
            with suppress(TimeoutError):
                promise(not client.recv(1 << 16).startswith(b"HTTP/1.1 500"), "no request is a fault")
        client.settimeout(PATIENCE_S)
        client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(1 << 16):
                pass
        except TimeoutError:
            promise(False, "a connection ends with its client")

    def check(self) -> None:
        """Ask as a good client does."""
        promise(self.thread.is_alive(), "the server goes on")
        beside = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            beside.request("GET", self._good, headers={"Authorization": f"Bearer {TOKEN}", "Connection": "close"})
            answer = beside.getresponse()
            promise(answer.status == 200 and len(answer.read()) > 100, "a good client gets its answer")
        finally:
            beside.close()
        notes, self.notes[:] = list(self.notes), []
        promise(not notes, notes[0] if notes else "")


def _pages(place: Addresses, _notes: _Notes) -> tuple[Any, str]:
    directory = tempfile.mkdtemp(prefix="clisup-fuzz-")
    book = TokenBook(directory)
    redeemed = book.redeem(book.add_link("fuzz", "drive"))
    assert redeemed is not None
    app = make_app(
        PageLink("/nowhere"), book, place, BoxLinks(), PushSender(push_key(directory), "mailto:a@example.org")
    )
    return app, redeemed[0]


def _gateway(place: Addresses, notes: _Notes) -> tuple[Any, str]:
    settings = GatewaySettings(backends=("demo",), max_body_bytes=300_000)
    sessions = GatewaySessions(settings, _away)
    return make_gateway(settings, TOKEN, place, _away, sessions, notes, GatewayMetrics()), ""  # type: ignore[arg-type]


@cache
def _door(name: str) -> Door:
    connection.LINGER_S, link.ANSWER_S = 0.05, 0.01  # for this process: no other server runs in the lane
    return Door(_pages, "/static/style.css") if name == "pages" else Door(_gateway, "/metrics")


def pages(data: bytes, salt: int) -> None:
    """No bytes end the pages, or keep a good browser from its answer."""
    _door("pages").play(data, salt)


def gateway(data: bytes, salt: int) -> None:
    """No bytes end the gateway, or keep a good program from its answer."""
    _door("gateway").play(data, salt)
