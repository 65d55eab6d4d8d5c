"""A hostile page in the user's browser, and a stranger without a token, before `clisup web` and `clisup gateway`."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from tests.attack.ground import Box, gone, until
from tests.attack.model import Attack

from gateway_kit import GatewayProcess  # isort: skip
from web_process import Browser, Pages  # isort: skip

__all__ = ["ATTACKS", "ground"]

EVIL = "https://evil.example"
ANSWER_S = 8.0
MOMENT_S, READ_S = 0.3, 3.0
IDLE_S = 20.0
"""For the end of a connection that asked for it."""


class Doors(NamedTuple):
    """Both doors before one daemon, and a browser of the user."""

    box: Box
    pages: Pages
    gateway: GatewayProcess
    browser: Browser


@contextmanager
def ground(chance: random.Random) -> Iterator[Doors]:
    """A daemon, its pages and its gateway."""
    with Box(chance) as box:
        pages = Pages(box.daemon)
        gateway = GatewayProcess(box.daemon.root, box.daemon.socket, backends=["demo"])
        pages.start()
        gateway.start()
        try:
            yield Doors(box, pages, gateway, pages.browser())
        finally:
            for process in (pages.process, gateway.process):
                if process is not None:
                    process.kill()
                    process.wait()


def _alive(doors: Doors) -> Doors:
    """Start again what an attack has ended."""
    for door in (doors.pages, doors.gateway):
        if door.process is None or door.process.poll() is not None:
            door.start()
    return doors


def _asks(doors: Doors) -> tuple[Any, str]:
    session = doors.box.session(mode="live")
    session.prompt('@ask Bash {"command": "echo x"}')
    return session, str(session.await_event("approval_requested")["approval_id"])


# -- another origin. Each entry is the headers that a browser sends along, with the user's cookie.

ORIGINS: dict[str, dict[str, str]] = {
    "a form of another page": {"Origin": EVIL},
    "a form without an origin": {"Origin": "null"},
    "a form of another port": {"Origin": "http://127.0.0.1:1"},
    "a form of a name that ends alike": {"Origin": "http://127.0.0.1.evil.example"},
    "a name bound again to this machine": {"Host": "evil.example", "Origin": "http://evil.example"},
    "no origin, and Sec-Fetch-Site": {"Origin": "", "Sec-Fetch-Site": "cross-site"},
    "text/plain": {"Origin": EVIL, "Content-Type": "text/plain"},
}


def acts(headers: dict[str, str], doors: Doors) -> str | None:
    """The page sends an answer to an approval, and a new session, with the cookie of the user."""
    session, approval = _asks(_alive(doors))
    sent = {
        "Content-Type": "application/x-www-form-urlencoded",
        **{name: text for name, text in headers.items() if text},
    }
    before = len(doors.box.daemon.call("session/list")["sessions"])
    for path, fields in (
        (f"/approvals/{session.id}/{approval}", "decision=allow"),
        ("/sessions/new", "backend=demo&prompt=hello"),
    ):
        with suppress(OSError):
            doors.browser.whole("POST", path, fields, **sent)
    resolved = session.events("approval_resolved")
    after = len(doors.box.daemon.call("session/list")["sessions"])
    session.call("close")
    return f"answered {resolved}, sessions {before} -> {after}" if resolved or after > before else None


def by_get(verb: str, doors: Doors) -> str | None:
    """A picture or a preview asks for what changes something."""
    session, approval = _asks(_alive(doors))
    for path in (f"/approvals/{session.id}/{approval}?decision=allow", "/logout", f"/sessions/{session.id}/close",
                 f"/sessions/{session.id}/interrupt", "/sessions/new?backend=demo&prompt=hello"):  # fmt: skip
        doors.browser.whole(verb, path)
    resolved, out = session.events("approval_resolved"), doors.browser.get("/")[0]
    session.call("close")
    return f"answered {resolved}, the user's page has status {out}" if resolved or out != 200 else None


def login_link(verb: str, doors: Doors) -> str | None:
    """A preview or a prefetch asks for a login link before its user does."""
    path = "/login?code=" + _alive(doors).pages.book.add_link("phone", "drive")
    preview = Browser(doors.pages)
    preview.whole(verb, path, **{"Sec-Purpose": "prefetch", "User-Agent": "preview"})
    from html import unescape
    from re import findall

    user = Browser(doors.pages)
    status, text, headers = user.get(path)
    if "set-cookie" in headers:
        return None
    fields = {name: unescape(value) for name, value in findall(r'name="(\w+)" value="([^"]*)"', text)}
    posted = user.whole("POST", path, "&".join(f"{name}={value}" for name, value in fields.items()),
                        **{"Origin": doors.pages.origin, "Content-Type": "application/x-www-form-urlencoded"})  # fmt: skip
    return None if "set-cookie" in posted[2] else f"the link is used up: status {status}, then {posted[0]}"


READS = ("/", "/approvals", "/sessions/{id}", "/live", "/sessions/{id}/live?after=0", "/api/sessions", "/status", "/cost",
         "/..%2f..%2fetc/passwd", "/static/../../tokens", "/static/%2e%2e/%2e%2e/web/tokens.json")  # fmt: skip


def without_token(doors: Doors) -> str | None:
    """A stranger asks for every page."""
    session = _alive(doors).box.session()
    session.ask("my word is plum")
    for path in READS:
        status, text, _ = Browser(doors.pages).get(path.format(id=session.id))
        if "plum" in text or session.id in text or status == 200:
            return f"{path} has status {status}"
    for path in ("/v1/models", "/v1/chat/completions", "/metrics", "/health"):
        status, text, _ = doors.gateway.send("GET", path, None, Authorization="Bearer x")
        if status == 200 and "demo" in json.dumps(text):
            return f"the gateway's {path} has status {status}"
    return None


def gateway_from_page(doors: Doors) -> str | None:
    """A page of another origin uses the gateway with the token that its user gave to a program in the browser."""
    body = doors.gateway.chat("hello")
    status, _, headers = _alive(doors).gateway.send("POST", "/v1/chat/completions", body, Origin=EVIL)
    allowed = headers.get("access-control-allow-origin")
    return f"status {status}, allowed origin {allowed}" if allowed in ("*", EVIL) else None


# -- bytes that are no good request

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def _h1(head: str, body: bytes = b"") -> Callable[[str], bytes]:
    return lambda host: head.replace("HOST", host).replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body


BYTES: dict[str, Callable[[str], bytes]] = {
    "HTTP/2 CONNECT": lambda _: PREFACE + _frame(1, 5, 1, b"\x02\x07CONNECT\x41\x01a"),
    "HTTP/2 DATA after an early answer": lambda _: PREFACE + _frame(1, 4, 1, b"\x82\x86\x84\x41\x04evil") + _frame(0, 0, 1, b"x") * 3,
    "HTTP/2 without a path": lambda _: PREFACE + _frame(1, 5, 1, b"\x82\x86"),
    "HTTP/2 window update of a closed stream": lambda _: PREFACE + _frame(1, 5, 1, b"\x82\x86\x84\x41\x01a") + _frame(8, 0, 1, b"\0\0\0\1") * 50,
    "HTTP/2 bad header compression": lambda _: PREFACE + _frame(1, 5, 1, b"\xff" * 50),
    "HTTP/2 1,000 pings": lambda _: PREFACE + _frame(6, 0, 0, b"12345678") * 1000,
    "upgrade to h2c": _h1("GET /login HTTP/1.1\nHost: HOST\nUpgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
    "upgrade to h2c with bad settings": _h1("POST /login HTTP/1.1\nHost: HOST\nUpgrade: h2c\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: !!!\nContent-Length: 5", b"hello"),
    "a websocket": _h1("GET / HTTP/1.1\nHost: HOST\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13"),
    "a websocket without a host, path of other bytes": _h1("GET /\xff%ff HTTP/1.1\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Key: x\nSec-WebSocket-Version: 99"),
    "hosts and cookies of other bytes": _h1("GET /\xff%zz HTTP/1.1\nHost: \xff\xfe\nCookie: clisup_web=\xff; \xe9=\xe9"),
    "two lengths": _h1("POST /login HTTP/1.1\nHost: HOST\nContent-Length: 5\nContent-Length: 6", b"hello!"),
    "a length and chunks": _h1("POST /login HTTP/1.1\nHost: HOST\nContent-Length: 5\nTransfer-Encoding: chunked", b"zz\r\n"),
    "a chunk of 2^64 bytes": _h1("POST /login HTTP/1.1\nHost: HOST\nTransfer-Encoding: chunked", b"ffffffffffffffff1\r\n"),
    "a header of 1 MiB": lambda host: b"GET / HTTP/1.1\r\nX: " + b"x" * (1 << 20),
    "a method of another protocol": lambda _: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500,
    "1,000 requests at once": lambda host: f"GET /login HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * 1000,
    "CONNECT and absolute targets": _h1("CONNECT a:1 HTTP/1.1\nHost: HOST"),
    "HTTP/0.9": lambda _: b"GET /\r\n\r\n",
}  # fmt: skip


def ends(name: str, doors: Doors) -> str | None:
    """A stranger sends these bytes to each door, and waits or leaves at once. A harmed door is started again."""
    _alive(doors)
    if (fault := _harmed(name, doors)) is not None:
        for door in (doors.pages, doors.gateway):
            door.kill()
    return fault


def _harmed(name: str, doors: Doors) -> str | None:
    for door, path in ((doors.pages, "web.log"), (doors.gateway, "gateway.log")):
        assert door.process is not None
        log = doors.box.daemon.root / path
        size = log.stat().st_size
        for stays in (True, False):
            with suppress(OSError), socket.create_connection(("127.0.0.1", door.port), ANSWER_S) as sock:
                sock.sendall(BYTES[name](f"127.0.0.1:{door.port}"))
                sock.settimeout(MOMENT_S)
                end = time.monotonic() + READ_S
                while stays and time.monotonic() < end and sock.recv(65536):
                    pass
            time.sleep(MOMENT_S)
            if gone(door.process.pid):
                door.process.wait()
                return f"the process of {path.removesuffix('.log')} ended with {door.process.returncode}"
        if b"Traceback" in log.read_bytes()[size:]:
            lines = [line for line in log.read_text(errors="replace").splitlines() if "Error" in line]
            return f"a fault in the log of {path.removesuffix('.log')}: {lines[-1].strip()[:120] if lines else 'a traceback'}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", door.port), ANSWER_S) as sock:
            sock.settimeout(ANSWER_S)
            sock.sendall(f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\n\r\n".encode())
            if sock.recv(100).startswith(b"HTTP/1.1"):
                continue
        return f"{path.removesuffix('.log')} serves no other client"
    return None


HOLDS: dict[str, tuple[str, bytes]] = {
    "an answer with Connection: close": ("chat", b"Connection: close\r\n"),
    "a streamed answer with Connection: close": ("stream", b"Connection: close\r\n"),
    "half a header": ("half", b""),
    "half a body": ("body", b""),
}


def holds(kind: str, more: bytes, doors: Doors) -> str | None:
    """A connection that has its answer, or never asks, ends."""
    gateway = _alive(doors).gateway
    body = json.dumps(gateway.chat("hello", stream=kind == "stream")).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {gateway.token}\r\n".encode()
    whole = head + b"Content-Length: %d\r\n" % len(body) + more + b"\r\n" + body
    sent = {"half": head, "body": whole[:-5]}.get(kind, whole)
    bound = IDLE_S if kind in ("chat", "stream") else IDLE_S * 3
    with socket.create_connection(("127.0.0.1", gateway.port), ANSWER_S) as sock:
        sock.sendall(sent)
        sock.settimeout(bound)
        try:
            while sock.recv(65536):
                pass
        except TimeoutError:
            return f"the connection is open {bound:.0f} s later"
        except OSError:
            pass
    return None


def token_of_tool(doors: Doors) -> str | None:
    """A tool makes itself a login link, with the command that its user has."""
    proof = _alive(doors).box.proof()
    env = f"CLISUP_SOCKET={doors.box.daemon.socket} CLISUP_STATE_DIR={doors.box.daemon.root / 'client-state'}"
    import sys

    words = f"{env} {sys.executable} -m clisup web --port {doors.pages.port} --print-link"
    doors.box.session().ask(f"@bash {words} > {proof} 2>&1")
    text = until(lambda: proof.exists() and proof.read_text())
    return "the tool has a login link" if "/login?code=" in text else None


ATTACKS = (
    *(Attack("P1", f"act by {name}", partial(acts, headers), name == "a form of another page") for name, headers in ORIGINS.items()),
    *(Attack("P1", f"act by {verb}", partial(by_get, verb), verb == "HEAD") for verb in ("GET", "HEAD", "OPTIONS")),
    *(Attack("P2", f"use up a login link by {verb}", partial(login_link, verb), verb == "HEAD") for verb in ("HEAD", "GET", "OPTIONS")),
    Attack("P3", "read without a token", without_token, True),
    Attack("P3", "use the gateway from another origin", gateway_from_page),
    *(Attack("P4", f"end a door by {name}", partial(ends, name), name in ("HTTP/2 CONNECT", "two lengths")) for name in BYTES),
    *(Attack("P5", f"hold {name}", partial(holds, *how), name == "an answer with Connection: close") for name, how in HOLDS.items()),
    Attack("T21", "make a login link of clisup web", token_of_tool),
)  # fmt: skip
