"""Many programs at once, slow readers, and bodies that are none."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable

from gateway_kit import CHAT, MESSAGES, RESPONSES, Served
from harness import until

Start = Callable[..., Served]
ROUNDS = 150


def test_two_hundred_requests_at_once_each_get_their_own_answer(gateway: Start) -> None:
    served = gateway()
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        answer = served.send("POST", CHAT, served.chat(f"I am {number}."))
        found[number] = answer[1]["choices"][0]["message"]["content"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == {number: f"You said: I am {number}." for number in range(200)}
    until(lambda: not any(served.daemon.call("session/list", state=state)["sessions"] for state in (None, "closed")))


def test_requests_over_the_limit_are_refused_and_try_again(gateway: Start) -> None:
    served = gateway(max_requests=1)
    mark, go = served.root / "mark", served.root / "go"
    prompt = f"@bash touch {mark}; while [ ! -e {go} ]; do sleep 0.05; done"
    thread = threading.Thread(target=lambda: served.send("POST", CHAT, served.chat(prompt)))
    thread.start()
    until(mark.exists)
    status, body, headers = served.send("POST", CHAT, served.chat("Hello."))
    assert (status, body["error"]["code"]) == (429, "overloaded") and int(headers["retry-after"]) > 0
    assert headers["x-should-retry"] == "true"
    go.touch()
    thread.join(60)
    # A client may hold its whole answer before the gateway has counted that request out.
    until(lambda: served.send("POST", CHAT, served.chat("Hello."))[0] == 200)


def test_readers_that_do_not_read_hold_up_nobody_and_are_ended(gateway: Start) -> None:
    served = gateway(before="import clisup.http.server as s; s.STALLED_S = 1.0")
    body = json.dumps(served.chat("@stream 3000 4000", stream=True)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
    slow = []
    for _ in range(5):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", served.port))
        one.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        slow.append(one)
    assert all(one.recv(12) == b"HTTP/1.1 200" for one in slow)
    assert served.send("POST", CHAT, served.chat("Hello."))[1]["choices"][0]["message"]["content"] == "You said: Hello."
    until(lambda: not served.daemon.call("session/list")["sessions"])
    for one in slow:
        one.close()


def test_a_body_that_is_too_large_too_slow_or_compressed_is_refused(gateway: Start) -> None:
    served = gateway(max_body_bytes=2000, before="import clisup.doors.gateway.endpoint as e; e.BODY_S = 0.5")
    assert served.send("POST", CHAT, served.chat("x" * 3000))[0] == 413
    assert served.send("POST", CHAT, b"\x1f\x8b", Content_Encoding="gzip")[0] == 415
    with socket.create_connection(("127.0.0.1", served.port), 60) as one:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
        one.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert one.recv(12) == b"HTTP/1.1 408"


def test_no_body_makes_the_gateway_fail(gateway: Start) -> None:
    served = gateway()
    seed, dice = 7, random.Random(7)
    good = {
        CHAT: served.chat("Hello.", tools=[{"type": "function", "function": {"name": "a"}}], stop=["x"], stream=False),
        RESPONSES: {"model": "demo", "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}], "store": False},
        MESSAGES: {**served.chat("Hello."), "max_tokens": 5, "system": [{"type": "text", "text": "Brief."}]},
    }  # fmt: skip
    for number in range(ROUNDS):
        path = dice.choice(list(good))
        status, _, _ = served.send("POST", path, spoilt(json.dumps(good[path]).encode(), dice))
        assert status in (200, 400, 404, 413), (seed, number, status, served.log()[-500:])
    assert "fault" not in served.log()
    assert served.send("POST", CHAT, served.chat("Hello."))[0] == 200


def spoilt(body: bytes, dice: random.Random) -> bytes:
    """A body with one thing wrong, or by chance still right."""
    at = dice.randrange(len(body))
    way = dice.randrange(6)
    if way == 0:
        return body[:at]
    if way == 1:
        return body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]
    if way == 2:
        return body.replace(
            b'"Hello."', dice.choice([b"null", b"1e999", b'"\\ud800"', b"[" * 3000 + b"]" * 3000, b'""', b"{}"])
        )
    if way == 3:
        return body.replace(b'"user"', dice.choice([b'"assistant"', b'"tool"', b"7", b'"\\u0000"']))
    if way == 4:
        return body.replace(b'"demo"', dice.choice([b'""', b'"demo/"', b'"/x"', b"[]", b'"demo/\\u0000"']))
    return bytes(dice.randrange(256) for _ in range(dice.randrange(200)))
