"""Hostile bytes, from a CLI and on the socket: the turn ends right, events stay valid, others notice nothing, memory is bounded."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from harness import Harness
from session_probe import SessionProbe
from wire import Hangup

from clisup.client.sync import Client

MIB = 1024 * 1024
DEEP = 100_000
TEXT = '{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"%s"}]},"parent_tool_use_id":null}'
TOOL = b'{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"i","name":"n","input":%s}]}}'
RETRY = b'{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":%s,"error_status":529}'
COST = b'{"type":"result","subtype":"success","is_error":false,"result":"odd","total_cost_usd":%s}'
NOISE = random.Random(1)

LINES: dict[str, tuple[bytes, str]] = {
    # what the CLI says -> its bytes, and what must be among the events: a type, or `unparsed` with its reason
    "UTF-16": ((TEXT % "x").encode("utf-16"), "malformed"),
    "UTF-16 without a mark": ((TEXT % "x").encode("utf-16-be"), "malformed"),
    "a byte-order mark": ((TEXT % "x").encode("utf-8-sig"), "message"),
    "NUL": (bytes(5000), "malformed"),
    "NUL in a string": ((TEXT % "a\\u0000b").encode(), "message"),
    "binary noise": (NOISE.randbytes(200_000), "malformed"),
    "terminal escapes": (b"\x1b[2J\x1b]0;title\x07\x1b[31mred", "malformed"),
    "invalid UTF-8": (TEXT.encode() % b"\xff\xfe\xc3\xed\xa0\x80\xf4\x90\x80\x80", "message"),
    "lone surrogates": ((TEXT % "\\ud83d \\ude00\\ud83d").encode(), "message"),
    "a line separator and CR": ((TEXT % "\u2028\u0085\\r").encode() + b"\r", "message"),
    "arrays without end": (b"[" * DEEP, "malformed"),
    "deep arrays": (TOOL % (b'{"a":' + b"[" * (DEEP // 2) + b"]" * (DEEP // 2) + b"}"), "malformed"),
    "more of them than values may be": (TOOL % (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"), "oversize"),
    "deep objects": (TOOL % (b'{"a":' * 300 + b"1" + b"}" * 300), "malformed"),
    "as deep as it may be": (TOOL % (b'{"a":' * 180 + b"1" + b"}" * 180), "tool_use"),
    "NaN": (RETRY % b"NaN", "malformed"),
    "Infinity": (COST % b"-Infinity", "malformed"),
    "an endless number": (RETRY % (b"9" * 5000), "malformed"),
    "a number that no float holds": (RETRY % (b"9" * 400), "retry"),
    "an exponent that no float holds": (RETRY % b"1e400", "malformed"),
    "duplicate keys": (b'{"type":"user",' * 2 + (TEXT % "the last one counts")[1:].encode(), "malformed"),
    "a known type twice": ((TEXT % "x").encode()[:-1] + b',"type":"assistant"}', "message"),
    "a very long key": (b'{"type":"system","subtype":"status","' + b"k" * 300_000 + b'":1,"status":"s"}', "status"),
    "a wrong shape": (b'{"type":"result","is_error":"no","usage":[],"result":7}', "malformed"),
    "millions of values": (b'{"type":"user","a":[' + b"[]," * 1_000_000 + b"1]}", "oversize"),
    "crowded with values": (b'{"type":"user","a":[' + b"1," * 100_001 + b"1]}", "oversize"),
    "an unknown type": (b'{"type":"from_the_future","a":[1,{"b":null}]}', "unknown_type"),
}


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} in an event")


def _valid(session: SessionProbe) -> list[dict[str, Any]]:
    """The stored events; each journal line is one line of strict JSON."""
    for path in (session.dir / "journal").iterdir():
        for line in path.read_bytes().split(b"\n")[:-1]:
            json.dumps(json.loads(line.decode(), parse_constant=_no_constant), ensure_ascii=False).encode()
    return session.events()


def _peak_mib(daemon: Harness) -> int:
    """The most memory that the daemon ever held."""
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) // 1024


@pytest.mark.fault(24)
@pytest.mark.fault(25)
@pytest.mark.fault(27)
@pytest.mark.fault(28)
@pytest.mark.fault(29)
@pytest.mark.parametrize("name", LINES)
def test_a_hostile_line_is_an_event_and_the_turn_ends_as_it_would(name: str, daemon: Harness, tmp_path: Path) -> None:
    data, expected = LINES[name]
    (tmp_path / "said").write_bytes(data + b"\n")
    session = daemon.new()
    result = session.ask(f"before\n@bytes {tmp_path}/said\nafter")
    assert (result["outcome"], result["text"]) == ("completed", "before\nafter")
    events = _valid(session)
    assert expected in {
        event.get("reason", event["type"]) if event["type"] == "unparsed" else event["type"] for event in events
    }
    assert len([event for event in events if event["type"] == "turn_completed"]) == 1
    assert session.ask("once more")["outcome"] == "completed"


@pytest.mark.fault(24)
def test_what_comes_one_byte_at_a_time_is_whole(daemon: Harness, tmp_path: Path) -> None:
    text = "ünïcode 🎈 \u2028 " * 40
    (tmp_path / "said").write_bytes((TEXT % text).encode() + b"\n")
    session = daemon.new()
    assert session.ask(f"@bytes {tmp_path}/said 1\nafter")["outcome"] == "completed"
    assert text in [block["text"] for event in session.events("message") for block in event["blocks"]]


@pytest.mark.fault(28)
def test_a_megabyte_of_noise_with_newlines_is_kept_and_each_line_counted(daemon: Harness, tmp_path: Path) -> None:
    noise = random.Random(2).randbytes(MIB)
    (tmp_path / "said").write_bytes(noise + b"\n")
    other, session = daemon.new(), daemon.new()
    other.prompt(f"@wait-file {tmp_path}/go\nunmoved")
    assert session.ask(f"@bytes {tmp_path}/said\nafter")["text"] == "after"
    lines = [line for line in noise.split(b"\n") if line.strip()]
    unparsed = [event for event in _valid(session) if event["type"] == "unparsed"]
    assert sum(event.get("lines", 1) for event in unparsed) >= len(lines) - 1
    (tmp_path / "go").touch()
    assert other.end_of("t1")["text"] == "unmoved"


@pytest.mark.fault(22)
@pytest.mark.fault(23)
def test_lines_of_64_mib_and_more_cost_bounded_memory(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session, other = daemon.new(), daemon.new()
    before = _peak_mib(daemon)
    (tmp_path / "over").write_bytes((TEXT % ("x" * 80 * MIB)).encode() + b"\n")
    assert session.ask(f"@bytes {tmp_path}/over\nafter")["text"] == "after"
    (oversize,) = session.events("unparsed")
    assert oversize["reason"] == "oversize" and oversize["bytes"] > 80 * MIB
    assert session.call("blob", blob=oversize["blob"], limit=1)["size"] > 80 * MIB
    grown = _peak_mib(daemon) - before
    assert grown < 2 * 64 + 64, f"{grown} MiB for a line over the limit"
    (tmp_path / "under").write_bytes((TEXT % ("x" * 63 * MIB)).encode() + b"\n")
    assert session.ask(f"@bytes {tmp_path}/under\nafter")["text"] == "after"
    long = next(block for event in session.events("message") for block in event["blocks"] if block.get("blob"))
    with Client.connect(daemon.socket) as client:
        assert client.blob(session.id, long["blob"]) == b"x" * 63 * MIB
    grown = _peak_mib(daemon) - before
    print(f"a line of 63 MiB: {grown} MiB more")
    assert grown < 4 * 64, f"{grown} MiB for a line under the limit"
    assert other.ask("unmoved")["outcome"] == "completed"


@pytest.mark.fault(23)
@pytest.mark.fault(26)
def test_a_line_without_end_is_kept_and_the_turn_fails(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(limits={"line_bytes": 65536})
    (tmp_path / "said").write_bytes(b"[" * 3 * MIB)
    session = daemon.new()
    result = session.ask(f"@bytes {tmp_path}/said\n@exit 0")
    assert (result["outcome"], result["error"]["kind"]) == ("failed", "crashed")
    (event,) = session.events("unparsed")
    assert (event["reason"], event["bytes"]) == ("oversize", 3 * MIB)
    assert session.ask("once more")["outcome"] == "completed"


NO_JSON, CROWD = (None, "parse_error"), (1, "invalid_request")  # millions of values are refused unread


# -- on the socket ----------------------------------------------------------------------------------------------------


@pytest.mark.fault(46)
def test_a_request_that_comes_one_byte_at_a_time_is_answered(daemon: Harness) -> None:
    with daemon.wire() as wire:
        for byte in '{"id":"ü","method":"ping"}\n'.encode():
            wire.send(bytes([byte]))
        assert wire.answer("ü")["time"]


@pytest.mark.fault(46)
@pytest.mark.parametrize(
    ("data", "refused"),
    [
        pytest.param(random.Random(3).randbytes(MIB) + b"\n", NO_JSON, id="noise"),
        pytest.param(bytes(MIB) + b"\n", NO_JSON, id="NUL"),
        pytest.param(b"[" * 15 * MIB + b"\n", (None, "invalid_request"), id="open arrays"),
        pytest.param(b'{"id":1,"method":"ping","params":' + b'{"a":' * (3 * MIB) + b"\n", CROWD, id="open objects"),
        pytest.param(b"{" + b'"id":1,' * (2 * MIB) + b'"method":"ping"}\n', CROWD, id="one key two million times"),
        pytest.param('{"id":1,"method":"ping"}'.encode("utf-16") + b"\n", NO_JSON, id="UTF-16"),
        pytest.param(
            b'{"id":1,"method":"ping","params":{"a":%s}}\n' % (b"9" * 15 * MIB), NO_JSON, id="a number of 15 MB"
        ),
    ],
)
def test_floods_of_nonsense_are_refused_and_the_connection_goes_on(
    data: bytes, refused: tuple[int | None, str], daemon: Harness
) -> None:
    with daemon.wire() as good, daemon.wire() as bad:
        sender = threading.Thread(target=bad.send, args=(data + b'{"id":"end","method":"ping"}\n',))
        sender.start()  # beside the reading: a client whose answers wait is not read
        refusals = 0
        while "error" in (frame := bad.frame()):
            assert (frame["id"], frame["error"]["data"]["kind"]) == refused
            refusals += 1
        sender.join()
        assert refusals and frame["id"] == "end"
        assert good.call("ping")["time"]


@pytest.mark.fault(46)
def test_a_number_that_no_float_holds_never_becomes_infinity(daemon: Harness) -> None:
    session = {"backend": "demo", "cwd": str(daemon.cwd)}
    for hostile in ('"timeouts":{"turn":1e400}', '"mcp_config":{"a":-1e400}'):
        with daemon.wire() as wire:
            wire.send(f'{{"id":1,"method":"session/new","params":{json.dumps(session)[:-1]},{hostile}}}}}\n'.encode())
            error = wire.frame()["error"]
            assert (error["data"]["kind"], "too large" in error["message"]) == ("parse_error", True)


@pytest.mark.fault(46)
def test_what_is_nested_too_deeply_to_be_stored_is_refused_at_the_door(daemon: Harness) -> None:
    def opened(depth: int) -> dict[str, Any]:
        head = f'{{"id":1,"method":"session/new","params":{{"backend":"demo","cwd":"{daemon.cwd}","mcp_config":'
        with daemon.wire() as wire:
            wire.send(head.encode() + b'{"a":' * depth + b"1" + b"}" * depth + b"}}\n")
            return wire.frame()

    for depth in (250, 900):
        assert opened(depth)["error"]["data"]["kind"] == "parse_error"
    assert opened(150)["result"]["session_id"]


@pytest.mark.fault(46)
def test_noise_on_the_socket_costs_bounded_memory(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    before = _peak_mib(daemon)
    for _ in range(3):
        with daemon.wire() as wire:
            try:
                wire.send(b'"' + b"\\" * 40 * MIB)
                assert wire.frame()["error"]["data"]["kind"] == "invalid_request"
            except (Hangup, BrokenPipeError, ConnectionResetError):
                pass
    grown = _peak_mib(daemon) - before
    assert daemon.call("ping") and grown < 64, f"{grown} MiB for frames over a limit of 16 MiB"
