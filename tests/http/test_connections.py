"""Connections of an HTTP server: none of them ends the process, delays others, or stays for ever."""

from __future__ import annotations

import datetime
import errno
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from http_kit import GET, PATIENCE_S, Server, answer, hello, serving, until, whole
from hypercorn.protocol.h11 import H11Protocol

from clisup.http import connection as connection_module
from clisup.http import connections as connections_module

H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
WEBSOCKET = b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
CLOSE = b"Connection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    monkeypatch.setattr(connection_module, "LINGER_S", 0.05)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (H2, 505),
        (H2 + b"\0\0\x0a\1\5\0\0\0\1\x02\x07CONNECT\x41\x01a", 505),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500, 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000, 431),
    ],
)
async def test_what_is_no_http_1_1_is_refused_and_others_are_served(sent: bytes, status: int) -> None:
    async with serving() as server:
        assert (await server.ask(sent)).startswith(b"HTTP/1.1 %d " % status)
        assert await server.is_well()
    assert server.notes == []


@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: !!!\r\n",
        b"Connection: Upgrade\r\n" + WEBSOCKET,
        b"Connection: Upgrade\r\nUpgrade: h2c, websocket\r\nUpgrade: h2c\r\n",
    ],
)
async def test_an_offer_of_another_protocol_is_ignored(offer: bytes) -> None:
    async with serving() as server:
        stream = await server.connect(GET[:-2] + offer + b"\r\nx")
        assert (await answer(stream, b"hello")).startswith(b"HTTP/1.1 200 ")
        await stream.aclose()
    assert server.notes == []


async def test_an_exception_of_the_application_ends_its_request_alone() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        if scope["path"] == "/group":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise KeyError("secret")
        if scope["path"] != "/":
            raise KeyError("secret")
        await hello(scope, receive, send)

    async with serving(fails) as server:
        for path, head in ((b"/x", b"HTTP/1.1 500 "), (b"/begun", b"HTTP/1.1 200 "), (b"/group", b"HTTP/1.1 500 ")):
            found = await server.ask(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + CLOSE)
            assert found.startswith(head) and not found.endswith(b"hello")
        assert await server.is_well()
    assert len(server.notes) == 3
    assert all(note.startswith("request fault: KeyError at ") and "secret" not in note for note in server.notes)


async def test_an_exception_of_the_protocol_ends_its_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = H11Protocol.handle

    async def fails(self: H11Protocol, event: Any) -> None:
        if getattr(event, "data", b"").startswith(b"BOOM"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                raise KeyError("secret")
        await taken(self, event)

    monkeypatch.setattr(H11Protocol, "handle", fails)
    async with serving() as server:
        beside = await server.connect(GET)
        await answer(beside, b"hello")
        assert await server.ask(b"BOOM") == b""
        await beside.send_all(GET)
        assert (await answer(beside, b"hello")).startswith(b"HTTP/1.1 200")
        await until(lambda: server.open == 1)
        await beside.aclose()
    assert [note.partition(" at ")[0] for note in server.notes] == ["connection fault: KeyError"]
    assert "secret" not in server.notes[0]


async def watches(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the doors do: a task of the application waits for the end of the client."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        headers = [] if scope["path"] == "/stream" else [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"hel", "more_body": True})
            await send({"type": "http.response.body", "body": b"lo", "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": b"hello"})
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_connection_ends_after_its_last_answer(path: bytes, version: bytes) -> None:
    last = b"POST " + path + b" HTTP/" + version + b"\r\nHost: a\r\nContent-Length: 2\r\n" + CLOSE + b"hi"
    async with serving(watches) as server:
        found = await server.ask(last)
        assert found.startswith(b"HTTP/1.1 200") and b"lo" in found[-12:] and b"connection: close" in found.lower()
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("path", [b"/", b"/stream"])
async def test_a_kept_connection_serves_pipelined_requests_and_ends_when_idle(
    path: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "IDLE_S", 0.1)
    one = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    async with serving(watches) as server:
        found = await server.ask(one * 20)
        assert found.count(b"HTTP/1.1 200") == 20
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: a\r\n", GET])
async def test_a_head_has_to_come_in_time(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_S", 0.1)
    async with serving() as server:
        await server.ask(sent)
        await until(lambda: server.open == 0)


async def test_an_answer_may_take_longer_than_any_limit_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "IDLE_S", 0.05)
    go = trio.Event()

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with serving(streams) as server:
        stream = await server.connect(GET)
        await answer(stream, b"first\r\n")
        for _ in range(5):  # idle connections beside it end
            await server.ask(b"")
        go.set()
        assert b"last" in await whole(stream)
        await stream.aclose()


async def test_a_client_that_closes_frees_its_connection_at_once() -> None:
    async with serving() as server:
        for sent in (b"", b"GET / HT", GET, GET * 3):
            stream = await server.connect(sent)
            await stream.aclose()
        await until(lambda: server.open == 0)
        assert await server.is_well()


async def test_an_application_learns_that_its_client_left_with_a_further_request_in_the_queue() -> None:
    told = trio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        told.set()

    async with serving(waits) as server:
        stream = await server.connect(GET * 2)
        await until(lambda: [one.waits_since for one in server.connections._open] == [None])
        await stream.aclose()
        with trio.fail_after(PATIENCE_S):
            await told.wait()
        await until(lambda: server.open == 0)


@pytest.mark.parametrize("size", [100_000, 5_000_000])
async def test_a_client_reads_why_its_large_body_is_refused(size: int) -> None:
    """The application does not read the body, whose pieces fill hypercorn's queue."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size
    async with serving() as server:
        found = await server.ask(head + b"x" * (size - 1))
        assert found.startswith(b"HTTP/1.1 200") and found.endswith(b"hello")
        await until(lambda: server.open == 0)
        assert await server.is_well()


async def test_a_full_server_ends_the_connection_that_waits_longest_and_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections_module, "MOST_CONNECTIONS", 3)
    go = trio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        await hello(scope, receive, send)

    async with serving(waits) as server:
        busy = await server.connect(GET.replace(b"/ ", b"/wait "))
        await until(lambda: [one.waits_since for one in server.connections._open] == [None])
        slow = [await server.connect(b"GET / HT") for _ in range(50)]
        assert await server.is_well()
        assert server.open <= 3
        assert await whole(slow[0]) == b""
        go.set()
        assert (await answer(busy, b"hello")).startswith(b"HTTP/1.1 200")
        for stream in (busy, *slow):
            await stream.aclose()


async def test_a_server_at_work_with_all_connections_refuses_a_further_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "MOST_CONNECTIONS", 2)
    go = trio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await hello(scope, receive, send)

    async with serving(waits) as server:
        busy = [await server.connect(GET) for _ in range(2)]
        await until(lambda: [one.waits_since for one in server.connections._open] == [None, None])
        for _ in range(3):
            found = await server.ask()
            assert found.startswith(b"HTTP/1.1 503") and b"retry-after" in found
        go.set()
        for stream in busy:
            assert (await answer(stream, b"hello")).startswith(b"HTTP/1.1 200")
            await stream.aclose()
    assert server.notes == ["connections are refused: 2 are at work, and that is the limit"]


async def test_without_descriptors_the_server_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [OSError(errno.EMFILE, "Too many open files")] * 3
    taken = trio.SocketListener.accept

    async def accept(self: trio.SocketListener) -> trio.SocketStream:
        if left:
            raise left.pop()
        return await taken(self)

    monkeypatch.setattr(trio.SocketListener, "accept", accept)
    async with serving() as server:
        assert await server.is_well()
    assert server.notes == ["no connection can be accepted: Too many open files"]


async def test_a_stop_ends_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections_module, "GRACE_S", 0.1)

    async def floods(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 50_000_000})

    with trio.fail_after(PATIENCE_S):
        async with serving(floods) as server:
            stream = await server.connect(GET)
            await until(lambda: [one._sending for one in server.connections._open] == [True])
            idle = await server.connect()
    await stream.aclose()
    await idle.aclose()


def certificate(place: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(36_500))
    pem = serialization.Encoding.PEM
    (place / "cert").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (place / "key").write_bytes(secret)
    settings = connections_settings(str(place / "cert"), str(place / "key"))
    assert settings is not None
    return settings


def connections_settings(cert: str, key: str) -> ssl.SSLContext | None:
    from clisup.http.server import HttpSettings, tls_of

    return tls_of(HttpSettings(tls_cert=cert, tls_key=key))


def client_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


async def test_a_silent_tls_handshake_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_S", 0.2)
    async with serving(tls=certificate(tmp_path)) as server:
        assert await server.ask(b"") == b""
        await until(lambda: server.open == 0)
    assert server.notes == []


async def test_with_tls_only_http_1_1_is_offered(tmp_path: Path) -> None:
    async with serving(tls=certificate(tmp_path)) as server:
        assert (await server.ask(b"GET / HTTP/1.1\r\n\r\n")).startswith((b"\x15\x03", b""))
        assert await tls_answer(server, GET[:-2] + CLOSE) == ("http/1.1", b"HTTP/1.1 200", True)
        assert (await tls_answer(server, H2))[1] == b"HTTP/1.1 505"
        await until(lambda: server.open == 0)
    assert server.notes == []


async def tls_answer(server: Server, sent: bytes) -> tuple[str | None, bytes, bool]:
    stream = trio.SSLStream(
        await server.connect(), client_context(), server_hostname="localhost", https_compatible=True
    )
    await stream.send_all(sent)
    found = await whole(stream)
    await stream.aclose()
    return stream.selected_alpn_protocol(), found[:12], found.endswith(b"hello")
