"""Deltas by the row are the deltas by the line: the same envelopes and the same journal, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.backends.base import Carried, Decoder, deltas_of
from clisup.backends.claude_decoder import ClaudeDecoder
from clisup.core.deltas import Delta
from clisup.core.envelope import Envelopes, encode_event, parse_event
from clisup.core.events import ContentDelta
from clisup.core.framing import LineFramer
from clisup.core.journal import Source, encode_line, encode_row
from tests.backends.recorded import PATHS, Recording, name_of

LIMIT = 65536
HEAD = {"session_id": "s", "ts": "t", "turn_id": "t1", "source": "backend"}


def by_line(decoder: Decoder, data: bytes) -> list[bytes]:
    """The journal of the lines, each decoded for itself."""
    written: list[bytes] = []
    for line in LineFramer().feed(data):
        for k, event in enumerate(decoder.decode(line).events):
            envelope = encode_event(event, seq=len(written), **HEAD)  # type: ignore[arg-type]
            written.append(encode_line(envelope, src=Source(1, "out", line.start, line.end, k)))
    return written


def by_row(decoder: Decoder, data: bytes) -> tuple[list[bytes], int]:
    """The same with rows wherever there are some; and how many lines were in rows."""
    written: list[bytes] = []
    lines, at, rows = LineFramer().feed(data), 0, 0
    pieces = [line.data for line in lines]
    while at < len(lines):
        deltas, places, taken = deltas_of(decoder)(pieces, at, LIMIT)
        if taken:
            envelopes = Envelopes("s", "t").encode_deltas(deltas, len(written), "t1")
            starts, ends = [lines[place].start for place in places], [lines[place].end for place in places]
            written += encode_row(envelopes, 1, starts, ends)
            at, rows = at + taken, rows + len(deltas)
            continue
        line = lines[at]
        for k, event in enumerate(decoder.decode(line).events):
            envelope = encode_event(event, seq=len(written), **HEAD)  # type: ignore[arg-type]
            written.append(encode_line(envelope, src=Source(1, "out", line.start, line.end, k)))
        at += 1
    return written, rows


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_recording_gives_the_same_journal_either_way(path: Path) -> None:
    recording = Recording(path)
    make = lambda: recording.adapter.decoder(recording.carried, recording.request)  # noqa: E731
    data = path.read_bytes()
    assert by_row(make(), data)[0] == by_line(make(), data)


def test_most_deltas_of_a_recording_go_by_the_row() -> None:
    data = Path(
        next(path for path in PATHS if "claude" in path.parts and path.read_bytes().count(b"text_delta") > 3)
    ).read_bytes()
    _, rows = by_row(ClaudeDecoder(Carried(0.0)), data)
    assert rows >= data.count(b'"type":"text_delta"') - data.count(b'"text_delta","text":""')


PIECES = ('"', "\\", "/", "\x00", "\x1f", "\x7f", "\u2028", "é", "\U0001f600", "\ufffd", "a")
WORDS = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@given(
    WORDS,
    st.sampled_from(["text", "thinking", "tool_input"]),
    st.integers(0, 2**53),
    st.none() | WORDS,
    st.none() | WORDS,
)
def test_both_forms_of_a_delta_are_written_alike(
    text: str, kind: str, index: int, message: str | None, parent: str | None
) -> None:
    event = ContentDelta.model_validate(
        {"kind": kind, "text": text, "index": index, "message_id": message, "parent_tool_use_id": parent}
    )
    delta = Delta(kind, text, index, message, parent)  # type: ignore[arg-type]
    (envelope,) = Envelopes("s", "t").encode_deltas([delta], 7, "t1")
    assert envelope == encode_event(event, seq=7, **HEAD)  # type: ignore[arg-type]
    assert parse_event(envelope).event == event


DELTAS = st.sampled_from([
    {"type": "text_delta", "text": "a"}, {"type": "text_delta", "text": ""}, {"type": "text_delta", "text": "\ud83d"},
    {"type": "text_delta", "text": "\ude00b"}, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta"},
    {"type": "input_json_delta", "partial_json": "{"}, {"type": "text_delta"}, {"type": "other"}, {}, None,
    {"type": "text_delta", "text": 3},
])  # fmt: skip
EVENTS = st.one_of(
    st.builds(lambda delta, index: {"type": "content_block_delta", "index": index, "delta": delta}, DELTAS, st.integers(0, 2)),
    st.sampled_from([
        {"type": "message_start", "message": {"id": "m1"}}, {"type": "message_stop"}, {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 0}, {"type": "ping"}, {"type": "new"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    ]),
)  # fmt: skip
FRAMES = st.builds(
    lambda event, parent: {"type": "stream_event", "event": event, "parent_tool_use_id": parent},
    EVENTS,
    st.sampled_from([None, None, "p"]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAMES, max_size=30))
def test_whatever_the_frames_both_ways_give_the_same_journal(frames: Sequence[object]) -> None:
    data = b"".join(json.dumps(frame, separators=(",", ":")).encode() + b"\n" for frame in frames)
    assert by_row(ClaudeDecoder(Carried(0.0)), data)[0] == by_line(ClaudeDecoder(Carried(0.0)), data)
