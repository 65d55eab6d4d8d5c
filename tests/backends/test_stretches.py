"""Lines by the stretch are the lines one by one: the same envelopes and the same journal, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.backends.base import Carried, Decoder
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.model.deltas import Delta
from clisup.model.envelope import Envelopes, encode_event, parse_event
from clisup.model.events import ContentDelta, EventBase
from clisup.model.journal import Source, encode_line, encode_row
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.stretch import Row, Told
from tests.backends.recorded import PATHS, Recording, name_of
from tests.backends.stretched import through

LIMIT = 65536
HEAD = {"session_id": "s", "ts": "t", "turn_id": "t1", "source": "backend"}


def by_line(decoder: Decoder, data: bytes) -> list[bytes]:
    """The journal of the lines, each decoded for itself."""
    written: list[bytes] = []
    for line in LineFramer().feed(data):
        write(written, line, decoder.decode(line).events)
    return written


def by_stretch(decoder: Decoder, data: bytes) -> tuple[list[bytes], int]:
    """The same with stretches wherever there are some; and how many lines were in one."""
    written: list[bytes] = []
    lines, short = LineFramer().feed(data), 0
    for said, taken in through(decoder, lines, LIMIT):
        for part in said:
            if isinstance(part, Row):
                envelopes = Envelopes("s", "t").encode_deltas(part.deltas, len(written), "t1")
                starts, ends = [lines[place].start for place in part.lines], [lines[place].end for place in part.lines]
                written += encode_row(envelopes, 1, starts, ends)
            else:
                assert part.events, "a line that says nothing is not told of"
                write(written, lines[part.line], part.events)
        short += taken
    return written, short


def write(written: list[bytes], line: Line, events: Sequence[EventBase]) -> None:
    for k, event in enumerate(events):
        envelope = encode_event(event, seq=len(written), **HEAD)  # type: ignore[arg-type]
        written.append(encode_line(envelope, src=Source(1, "out", line.start, line.end, k)))


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_a_recording_gives_the_same_journal_either_way(path: Path) -> None:
    recording = Recording(path)
    make = lambda: recording.adapter.decoder(recording.carried, recording.request)  # noqa: E731
    data = path.read_bytes()
    assert by_stretch(make(), data)[0] == by_line(make(), data)


@pytest.mark.parametrize("path", [path for path in PATHS if "claude" in path.parts], ids=name_of)
def test_all_but_a_few_kinds_of_claudes_lines_go_by_the_stretch(path: Path) -> None:
    recording = Recording(path)
    lines = path.read_bytes().splitlines()
    _, short = by_stretch(recording.adapter.decoder(recording.carried, recording.request), path.read_bytes())
    plain = [
        line for line in lines if line.startswith((b'{"type":"stream_event"', b'{"type":"system","subtype":"status"'))
    ]
    odd = [line for line in plain if len(line) >= LIMIT or b"\\ud" in line.lower()]
    assert short >= len(plain) - 3 * len(odd)


def test_what_a_turn_hangs_on_is_in_no_stretch() -> None:
    """What the daemon has to decide something about: see `Decoder.stretch`."""
    found: set[str] = set()
    for path in PATHS:
        recording = Recording(path)
        decoder = recording.adapter.decoder(recording.carried, recording.request)
        for said, taken in through(decoder, LineFramer().feed(path.read_bytes()), LIMIT):
            if taken:
                found |= {event.type for part in said if isinstance(part, Told) for event in part.events}
    assert found >= {"message", "message_start", "message_stop", "tool_use", "tool_result", "status"}
    assert not found & {
        "approval_requested", "approval_resolved", "retry", "tool_progress", "session_init", "unparsed", "turn_completed",
    }  # fmt: skip


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
BLOCKS = st.sampled_from([
    {"type": "text", "text": "a"}, {"type": "tool_use", "id": "t", "name": "n", "input": {"a": [1]}}, {"type": "new"}, {}, 3,
    {"type": "tool_result", "tool_use_id": "t", "content": "r"}, {"type": "tool_result"}, {"type": "tool_result", "content": [3]},
    {"type": "tool_use", "id": "t", "name": "n", "input": {"a": json.loads("[" * 300 + "]" * 300)}},
])  # fmt: skip
CONTENT = st.one_of(st.just("words"), st.lists(BLOCKS, max_size=3), st.none())
PARENTS = st.sampled_from([None, None, "p"])
FRAMES = st.one_of(
    st.builds(lambda event, parent: {"type": "stream_event", "event": event, "parent_tool_use_id": parent}, EVENTS, PARENTS),
    st.builds(
        lambda kind, id_, content, parent: {
            "type": kind, "message": {"id": id_, "content": content}, "parent_tool_use_id": parent,
        },
        st.sampled_from(["assistant", "user"]), st.sampled_from(["m1", "m2", None]), CONTENT, PARENTS,
    ),
    st.sampled_from([
        {"type": "system", "subtype": "status", "status": "requesting"}, {"type": "system", "subtype": "status", "status": {}},
        {"type": "system", "subtype": "status", "more": json.loads("[" * 300 + "]" * 300)},
        {"type": "system", "subtype": "thinking_tokens"}, {"type": "system", "subtype": "new"}, {"type": "system"}, {"type": "new"},
        {"type": "result", "subtype": "success", "is_error": False}, {"type": "system", "subtype": "init", "session_id": "s"},
    ]),
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(FRAMES, max_size=30))
def test_whatever_the_frames_both_ways_give_the_same_journal(frames: Sequence[object]) -> None:
    data = b"".join(json.dumps(frame, separators=(",", ":")).encode() + b"\n" for frame in frames)
    assert by_stretch(ClaudeDecoder(Carried(0.0)), data)[0] == by_line(ClaudeDecoder(Carried(0.0)), data)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"system","subtype":"status","status":"x","more":' + b"[" * 300 + b"]" * 300 + b"}",
        b'{"type":"system","subtype":"status","status":"x","type":"result","is_error":false}',
        b'{"type":"system","subtype":"status","status":"x","type":"keep_alive"}',
        b'{"type":"system","subtype":"thinking_tokens","subtype":"status"}',
        b'{"type":"system","subtype":"status","subtype":"thinking_tokens"}',
        b'{"type":"system","subtype":"status","status":"x","n":123456789012345678901234567890}',
        b'{"type":"system","subtype":"status","status":"x","n":"\xff"}',
        b'{"type":"system","subtype":"status","status":"\\ud83d"}',
    ],
)
def test_a_status_of_an_odd_shape_is_the_same_either_way(line: bytes) -> None:
    data = line + b"\n"
    assert by_stretch(ClaudeDecoder(Carried(0.0)), data)[0] == by_line(ClaudeDecoder(Carried(0.0)), data)
