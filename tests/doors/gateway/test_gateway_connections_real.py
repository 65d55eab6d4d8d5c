"""The ends of connections to the gateway, for each dialect, read to their end."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import psutil
import pytest
from gateway_kit import CHAT, MESSAGES, RESPONSES, Served
from harness import PATIENCE_S, until

Start = Callable[..., Served]


def request(served: Served, path: str, prompt: str, *lines: str, stream: bool = False, version: str = "1.1") -> bytes:
    body = {"input": prompt, "model": "demo"} if path == RESPONSES else served.chat(prompt)
    data = json.dumps({**body, "stream": stream, **({"max_tokens": 9} if path == MESSAGES else {})}).encode()
    host, token = f"Host: 127.0.0.1:{served.port}", f"Authorization: Bearer {served.token}"
    head = [f"POST {path} HTTP/{version}", host, token, f"Content-Length: {len(data)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + data


def read_to_the_end(served: Served, sent: bytes) -> bytes:
    found = b""
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) as client:
        client.sendall(sent)
        while piece := client.recv(1 << 16):
            found += piece
    return found


def connections(served: Served) -> int:
    assert served.process is not None
    return len([one for one in psutil.Process(served.process.pid).net_connections("tcp") if one.raddr])


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_connection_ends_after_its_answer_where_the_client_asks_for_it(gateway: Start, path: str) -> None:
    served = gateway(before="import clisup.http.connection as c; c.IDLE_S = 0.5")
    for stream in (False, True):
        for version, line in (("1.1", "Connection: close"), ("1.1", "Connection: keep-alive"), ("1.0", "X: y")):
            found = read_to_the_end(served, request(served, path, "Hello.", line, stream=stream, version=version))
            assert found.startswith(b"HTTP/1.1 200") and b"You said" in found, found
            assert (b"connection: close" in found.lower()) == (line != "Connection: keep-alive")
    two = request(served, path, "One.") + request(served, path, "Two.", "Connection: close", stream=True)
    found = read_to_the_end(served, two)
    assert found.count(b"HTTP/1.1 200") == 2 and found.index(b"One.") < found.index(b"Two.")
    until(lambda: connections(served) == 0, served.log)
    assert "fault" not in served.log()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_client_that_leaves_in_mid_turn_ends_its_turn(gateway: Start, stream: bool, more: bytes) -> None:
    served = gateway()
    mark = served.root / "mark"
    prompt = f"@bash touch {mark}; sleep 600"
    client = socket.create_connection(("127.0.0.1", served.port), PATIENCE_S)
    client.sendall(request(served, CHAT, prompt, stream=stream) + more)
    until(mark.exists)
    client.close()
    until(lambda: not served.daemon.call("session/list")["sessions"] and connections(served) == 0, served.log)
    assert "fault" not in served.log()
