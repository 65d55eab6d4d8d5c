"""Lines of megabytes: what becomes of them is what the decoder makes of the whole line, blobs and all; also after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness import Harness
from session_probe import SessionProbe

from clisup.backends.base import Carried
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.host.failpoints import VARIABLE
from clisup.model.lines.framing import LineFramer
from clisup.policy.spill import spill

MIB = 1024 * 1024
CODE = 'def f(a, b):\n    return "é" + a\t\\ 😀\n'
ENVELOPE = ("session_id", "seq", "ts", "turn_id", "source")


def _result(content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "t", "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None, **more}


def _message(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m", "model": "x", "content": list(blocks)}}


LONG = CODE * (2 * MIB // len(CODE))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO" * (MIB // 2)}}
SAID = [
    _result(LONG, tool_use_result={"stdout": LONG}),
    _result([{"type": "text", "text": "an image"}, IMAGE]),
    _message({"type": "tool_use", "id": "t2", "name": "Write", "input": {"content": LONG, "path": "/x"}}),
    _message({"type": "text", "text": LONG}),
    {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": LONG}}},
    _result("half a pair \ud83d" + LONG),
    {"type": "news", "text": LONG},
]  # fmt: skip


def _by_decoder(session: SessionProbe) -> list[tuple[dict[str, Any], dict[str, bytes]]]:
    """What the decoder and the rule of the inline limit make of the spool, each line in one piece."""
    framer, decoder = LineFramer(), ClaudeDecoder(Carried(cost_usd=0.0))
    found: list[tuple[dict[str, Any], dict[str, bytes]]] = []
    for line in framer.feed((session.dir / "runs/1/out.spool").read_bytes()):
        for k, event in enumerate(decoder.decode(line).events):
            small, blobs = spill(event, run=1, spool="out", line=line, k=k, limit=256 * 1024)
            found.append((json.loads(msgspec.json.encode(small)), {b.name: bytes(b.data) for b in blobs}))
    return found


def _same_as_whole(session: SessionProbe) -> None:
    expected = _by_decoder(session)
    told = [event for event in session.events() if event["source"] == "backend" and event["type"] != "stderr"]
    assert [{key: e[key] for key in e if key not in ENVELOPE} for e in told] == [event for event, _ in expected]
    blobs = {name: data for _, held in expected for name, data in held.items()}
    files = [
        path for path in (session.dir / "runs/1/blobs").iterdir() if path.suffix != ".tmp"
    ]  # of a daemon killed in mid-write
    kept = {path.name: path.read_bytes() for path in files}
    assert kept == blobs and len(blobs) >= len(SAID) - 1


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "said"
    path.write_text("".join(json.dumps(frame) + "\n" for frame in SAID))
    return path


def test_a_client_cannot_tell_that_long_lines_were_read_in_slices(daemon: Harness, said: Path) -> None:
    session = daemon.new()
    assert session.ask(f"@bytes {said}\nafter")["text"] == "after"
    _same_as_whole(session)


def test_the_cli_s_own_line_comes_whole_to_who_asks_for_it(daemon: Harness, said: Path) -> None:
    session = daemon.new()
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, raw=True)
        session.ask(f"@bytes {said}\nafter")
        natives = [event["native"] for event in wire.events_until("turn_completed") if "native" in event]
    lines = (session.dir / "runs/1/out.spool").read_text().splitlines()
    assert all(native in lines for native in natives)
    assert {json.dumps(frame) for frame in SAID} <= set(natives)


def test_a_daemon_that_is_killed_among_long_lines_goes_on_as_if_nothing_had_been(
    serve: Callable[..., Harness], said: Path, tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    turn = session.prompt(f"@bytes {said}\n@wait-file {tmp_path}/go\n@bytes {said}\nafter")
    session.await_event("tool_result", 2)
    (tmp_path / "go").touch()
    daemon.restart()
    session.await_event("content_delta", 2)
    daemon.restart()
    assert session.end_of(turn)["outcome"] == "completed"
    _same_as_whole(session)


def test_a_disk_that_refuses_long_payloads_for_a_while_loses_none(serve: Callable[..., Harness], said: Path) -> None:
    daemon = serve(env={VARIABLE: "file.write=ENOSPC@7-9, file.rename=EIO@8-9"})
    session = daemon.new()
    assert session.ask(f"@bytes {said}\nafter")["outcome"] == "completed"
    assert "turn waits for the disk" in daemon.log.read_text()
    _same_as_whole(session)
