"""Bytes for the HTTP doors: good requests, their spoilt forms, and what speaks another protocol.

`@HOST@`, `@COOKIE@`, `@FORM@` and `@TOKEN@` become those of the door, so that many inputs get past its guard.
"""

from __future__ import annotations

import random

__all__ = ["HttpBytes"]

_HEAD = b"Host: @HOST@\r\nCookie: clisup_web=@COOKIE@\r\nAuthorization: Bearer @TOKEN@\r\nOrigin: http://@HOST@\r\n"
_CHAT = b'{"model":"demo","messages":[{"role":"user","content":"hi"}]}'
_SESSION = b"/sessions/3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
_GETS = (
    b"/",
    b"/live",
    b"/approvals",
    b"/login?code=x",
    b"/static/style.css",
    b"/timeline",
    b"/cost/live",
    b"/boxes/a/live",
    b"/v1/models",
    b"/v1/models/demo",
    b"/metrics",
    _SESSION,
    _SESSION + b"/live?after=0",
    _SESSION + b"/blobs/x",
    b"/sessions/new",
)
_POSTS = (
    b"/login",
    b"/logout",
    b"/approvals",
    b"/push",
    b"/sessions/new",
    _SESSION + b"/prompt",
    _SESSION + b"/close",
    b"/boxes/a/logout",
)
_ASKS = (b"/v1/chat/completions", b"/v1/responses", b"/v1/messages", b"/v1/messages/count_tokens")
_H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
_FRAMES = (
    b"\0\0\x0a\1\5\0\0\0\1\x02\x07CONNECT\x41\x01a",
    b"\0\0\1\0\0\0\0\0\1x",
    b"\0\0\x08\6\0\0\0\0\0pingping",
    b"\0\0\4\x08\0\0\0\0\0\x7f\xff\xff\xff",
    b"\0\0\3\1\4\0\0\0\1\x82\x86\x84",
)
_STRANGE = (
    b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03" + b"a" * 64,
    b"GET /\r\n\r\n",
    b"\r\n\r\n",
    b"\0" * 40,
    b"\x81\x85\1\2\3\4hello",
    b"SSH-2.0-x\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
    b"TRACE / HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
    b"GET http://@HOST@/login HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
    b"GET //evil/%2e%2e/%00 HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
    b"GET /%ff%fe%zz?%=&%41 HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
)
_HEADERS = (
    b"Content-Length: 5",
    b"Content-Length: -1",
    b"Content-Length: 0x5",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5, 6",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Connection: close",
    b"Connection: Upgrade, HTTP2-Settings",
    b"Upgrade: h2c",
    b"Upgrade: websocket",
    b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    b"Sec-WebSocket-Version: 13",
    b"Expect: 100-continue",
    b"Expect: nothing",
    b"TE: trailers",
    b"Trailer: a",
    b" folded",
    b"\tfolded",
    b"Host: evil.example",
    b"Host:",
    b"Origin: null",
    b"Sec-Fetch-Site: cross-site",
    b"Cookie: a=\xff; clisup_web=\xe9",
    b"X: \xff\xfe",
    b"X: " + b"x" * 40_000,
    b"\r\n".join([b"a: b"] * 300),
    b"\r\n".join([b"cookie: a=b"] * 90),
    b": empty",
    b"a b: c",
    b"Last-Event-ID: \x00",
    b"Last-Event-ID: -1",
    b"Content-Encoding: gzip",
    b"Content-Type: multipart/form-data",
    b"Idempotency-Key: \xe9",
    b"x-clisup-session: \xff",
    b"Range: bytes=0-,1-",
    b"If-None-Match: *",
)
_CHUNKS = (
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\nhello",
    b"5\r\nhello0\r\n\r\n",
    b"5\nhello\n0\n\n",
    b"0\r\n" + b"a: b\r\n" * 3000 + b"\r\n",
    b"1\r\na\r\n" * 500 + b"0\r\n\r\n",
    b"0\r\n\r\nGET /login HTTP/1.1\r\nHost: @HOST@\r\n\r\n",
)
_BYTES = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b"\x0b", b"\x85", b"\xff", b":", b"\r\n\r\n", b"%00", b"\x1b[2J")
_WORDS = (
    (b"GET", b"get"),
    (b"GET", b"X" * 300),
    (b"GET", b"HEAD"),
    (b"POST", b"PUT"),
    (b"HTTP/1.1", b"HTTP/1.0"),
    (b"HTTP/1.1", b"HTTP/9.9"),
    (b"HTTP/1.1", b"HTTP/1.1 "),
    (b"HTTP/1.1", b"HTTP/2.0"),
    (b"\r\n", b"\n"),
    (b"\r\n", b"\r"),
    (b": ", b":"),
    (b": ", b" : "),
    (b"@HOST@", b"evil"),
)


class HttpBytes:
    """Maker of inputs. `rng` is the only source of chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self) -> bytes:
        pick = self._rng.random()
        if pick < 0.08:
            return _H2 + b"".join(self._rng.choice(_FRAMES) * self._rng.choice((1, 1, 3, 50)) for _ in range(3))
        if pick < 0.16:
            return self._spoil(self._rng.choice(_STRANGE))
        data = b"".join(self._request() for _ in range(self._rng.choice((1, 1, 1, 2, 4))))
        for _ in range(self._rng.choice((0, 1, 1, 2))):
            data = self._spoil(data)
        return data

    def _request(self) -> bytes:
        rng = self._rng
        extra = b"".join(rng.choice(_HEADERS) + b"\r\n" for _ in range(rng.choice((0, 0, 1, 1, 2, 3))))
        way = rng.random()
        if way < 0.4:
            return b"GET " + rng.choice(_GETS) + b" HTTP/1.1\r\n" + _HEAD + extra + b"\r\n"
        if way < 0.6:
            return (
                b"POST "
                + rng.choice(_POSTS + _ASKS)
                + b" HTTP/1.1\r\n"
                + _HEAD
                + extra
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + rng.choice(_CHUNKS)
            )
        ask = rng.random() < 0.5
        body = _CHAT if ask else b"form_token=@FORM@&code=x&decision=allow&text=hi"
        size = len(body) if rng.random() < 0.7 else rng.choice((0, 1, 10_000))
        if rng.random() < 0.1:
            body += b"x" * 400_000
        path = rng.choice(_ASKS if ask else _POSTS)
        return b"POST " + path + b" HTTP/1.1\r\n" + _HEAD + extra + b"Content-Length: %d\r\n\r\n" % size + body

    def _spoil(self, data: bytes) -> bytes:
        rng, at = self._rng, int(self._rng.random() * len(data))
        way = int(rng.random() * 6)
        if way == 0:
            return data[:at]
        if way == 1:
            return data[:at] + rng.choice(_BYTES) + data[at + int(rng.random() * 3) :]
        if way == 2:
            return data[:at] + bytes([int(rng.random() * 256)]) + data[at + 1 :]
        if way == 3:
            return data.replace(*rng.choice(_WORDS), 1 + int(rng.random() * 3))
        if way == 4:
            return data[:at] + data[at : at + 40] * (2 + int(rng.random() * 40)) + data[at:]
        lines = data.split(b"\r\n")
        lines.insert(int(rng.random() * len(lines)), rng.choice(_HEADERS))
        return b"\r\n".join(lines)
