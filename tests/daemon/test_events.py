"""The record of a session: complete from any seq, the same for everybody, and nothing that a CLI says is lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Harness, until
from wire import Wire

from clisup.client.sync import Client
from clisup.errors import ClisupError


@pytest.fixture(scope="module")
def small() -> Iterator[Harness]:
    """Limits that ordinary answers reach, and segments that roll in mid-turn."""
    limits = {"line_bytes": 65536, "inline_bytes": 2048, "stderr_events": 20, "stderr_bytes": 65536}
    harness = Harness(limits=limits, daemon={"segment_bytes": 65536})
    harness.start()
    yield harness
    harness.close()


def test_snapshot_and_tail_join_at_any_seq(small: Harness) -> None:
    session = small.new()
    session.prompt("@stream 1200 100 0.001")
    session.await_event("content_delta")
    wires: list[tuple[int, Wire]] = []
    for n in range(8):
        after = int(session.get()["next_seq"]) * n // 8
        wires.append((after, small.wire()))
        wires[-1][1].call("session/subscribe", session_id=session.id, after_seq=after)
    whole = {after: wire.events_until("turn_completed") for after, wire in wires}
    stored = session.events()
    for after, events in whole.items():
        assert events == stored[after:]
    for _, wire in wires:
        wire.close()
    assert len(list((session.dir / "journal").iterdir())) > 1


def test_the_bytes_of_an_event_are_the_same_for_everybody(small: Harness) -> None:
    session = small.new()
    with small.wire() as live:
        live.call("session/subscribe", session_id=session.id, after_seq=0)
        session.ask("some text with ünïcode \u2028 in it")
        lines = []
        while not lines or b'"type":"turn_completed"' not in lines[-1]:
            lines.append(live.line())
    journal = b"".join(path.read_bytes() for path in sorted((session.dir / "journal").iterdir()))
    for line in lines:
        assert line[line.index(b'"params":') + 9 : -1] in journal


def test_types_and_deltas_can_be_left_out(small: Harness) -> None:
    session = small.new()
    with small.wire() as one, small.wire() as two:
        one.call("session/subscribe", session_id=session.id, after_seq=0, types=["message", "turn_completed"])
        two.call("session/subscribe", session_id=session.id, after_seq=0, deltas=False)
        session.ask("@stream 50\ntext")
        assert {e["type"] for e in one.events_until("turn_completed")} == {"message", "turn_completed"}
        types = [e["type"] for e in two.events_until("turn_completed")]
    assert "content_delta" not in types and "message" in types
    page = session.call("events", types=["turn_completed"], limit=1)
    assert [e["type"] for e in page["events"]] == ["turn_completed"]


def test_raw_lines_are_those_of_the_spool(small: Harness) -> None:
    session = small.new()
    session.ask("@unknown\nhello\n@noise")
    page = session.call("events", raw=True, limit=1000)
    spool = (session.dir / "runs/1/out.spool").read_bytes()
    natives = [e["native"].encode() for e in page["events"] if "native" in e]
    assert natives and all(native in spool for native in natives)
    assert all(("native" in e) == (e["source"] == "backend") for e in page["events"])


def test_a_cursor_from_the_future_is_refused(small: Harness) -> None:
    session = small.new()
    with pytest.raises(ClisupError) as refused:
        session.call("subscribe", after_seq=5)
    assert refused.value.kind == "invalid_params" and refused.value.data["next_seq"] == 1


@pytest.mark.fault(22)
@pytest.mark.fault(23)
def test_a_line_over_the_limit_is_kept_whole_beside_the_events(small: Harness) -> None:
    session = small.new()
    assert session.ask("before\n@line 60000\n@line 300000\nafter")["outcome"] == "completed"
    oversize = session.events("unparsed", reason="oversize")
    assert len(oversize) == 1 and oversize[0]["bytes"] in (299999, 300000)
    with Client.connect(small.socket) as client:
        blob = client.blob(session.id, oversize[0]["blob"])
    assert blob in (session.dir / "runs/1/out.spool").read_bytes() and len(blob) >= 299999
    page = session.call("blob", blob=oversize[0]["blob"], offset=10, limit=7)
    assert base64.b64decode(page["data_base64"]) == blob[10:17] and not page["eof"]
    for name in ("raw-1-out-0-99999999", "blob-1-out-7-0", "raw-9-out-0-10"):
        with pytest.raises(ClisupError):
            session.call("blob", blob=name)


@pytest.mark.fault(22)
def test_a_big_answer_comes_whole_with_wait(small: Harness) -> None:
    session = small.new()
    whole = session.ask("@huge 30000")["text"]
    end = session.events("turn_completed")[0]
    assert len(whole) >= 30000 and len(end["text"]) < 5000 and whole.startswith(end["text"])
    with Client.connect(small.socket) as client:
        assert client.blob(session.id, end["blob"]).decode() == whole


@pytest.mark.fault(30)
def test_stderr_is_bounded_and_redacted(small: Harness) -> None:
    session = small.new()
    key = "sk-ant-" + "a1B2" * 10
    session.ask(f"@stderr my key is {key}\n@stderr-flood 3000000\n@stderr the very end\nhello")
    lines = session.events("stderr")
    assert len(lines) == 21 and "[redacted]" in lines[0]["text"] and key not in json.dumps(session.events())
    spool = (session.dir / "runs/1/err.spool").read_bytes()
    assert len(spool) < 70_000 and b"the very end" in spool


@pytest.mark.fault(30)
def test_a_secret_is_not_cut_in_half_on_stderr(small: Harness) -> None:
    session = small.new()
    session.ask("@stderr " + "x" * 1980 + " sk-ant-" + "a1B2" * 10)
    text = session.events("stderr")[0]["text"]
    assert "sk-ant" not in text and len(text) <= 2000


@pytest.mark.fault(28)
@pytest.mark.fault(29)
def test_unknown_frames_and_noise_are_kept(small: Harness) -> None:
    session = small.new()
    assert session.ask('@noise\n@unknown\n@misshapen\n@raw {"half": \nhello')["outcome"] == "completed"
    reasons = {event["reason"] for event in session.events("unparsed")}
    assert {"malformed", "unknown_type"} <= reasons
    spool = (session.dir / "runs/1/out.spool").read_text(errors="replace")
    assert all(event["excerpt"][:20] in spool for event in session.events("unparsed"))


@pytest.mark.fault(24)
@pytest.mark.fault(25)
@pytest.mark.fault(27)
def test_bad_bytes_are_an_event_and_the_stream_goes_on(small: Harness) -> None:
    session = small.new()
    result = session.ask("@bad\n\u2028 and ünïcode 🎈 survive")
    assert result["outcome"] == "completed" and "\u2028 and ünïcode 🎈 survive" in result["text"]
    with small.wire() as wire:
        wire.call("session/subscribe", session_id=session.id, after_seq=0, raw=True)
        assert wire.events_until("turn_completed")[-1]["outcome"] == "completed"


@pytest.mark.fault(26)
def test_a_last_line_without_newline_is_not_lost(small: Harness) -> None:
    session = small.new()
    session.ask("hello\n@crash")
    assert session.events("unparsed", reason="truncated")


@pytest.mark.fault(59)
def test_a_spool_over_its_quota_ends_the_turn(serve: Callable[..., Harness]) -> None:
    daemon = serve(limits={"spool_bytes": 100_000})
    session = daemon.new()
    error = session.ask("@stream 100000 100")["error"]
    assert error["kind"] == "output_limit"
    assert (session.dir / "runs/1/out.spool").stat().st_size <= 100_000


@pytest.mark.fault(1)
def test_segments_that_roll_in_mid_turn_survive_a_kill(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"segment_bytes": 65536})
    session = daemon.new()
    session.prompt(f"@stream 800 60 0.001\n@wait-file {tmp_path}/go\n@stream 100")
    until(lambda: len(session.chunks()) > 500)
    daemon.restart()
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"
    assert session.chunks() == [*range(800), *range(100)]
