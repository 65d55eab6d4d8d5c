"""Lines decoded by the chunk give the events of the lines one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.backends.base import Carried, Decoder
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.model.events import EventBase
from clisup.model.lines.framing import Line, LineFramer
from tests.backends.recorded import PATHS, Recording, name_of

Told = tuple[Line, Sequence[EventBase]]


def by_line(decoder: Decoder, data: bytes) -> list[Told]:
    return [(line, decoder.decode(line).events) for line in LineFramer().feed(data)]


def by_chunk(decoder: Decoder, data: bytes) -> list[Told]:
    return [one for told, last in chunks(decoder, data) for one in [*told, *([last] if last else [])]]


def chunks(decoder: Decoder, data: bytes) -> Iterator[tuple[Sequence[Told], Told | None]]:
    """Yield the plain lines of each chunk, and the line that needed a decision."""
    lines = iter(LineFramer().feed(data))
    while (chunk := decoder.decode_chunk(lines)).told or chunk.line is not None:
        last = None if chunk.line is None or chunk.decoded is None else (chunk.line, chunk.decoded.events)
        yield chunk.told, last


@pytest.mark.parametrize("path", [path for path in PATHS if "claude" in path.parts], ids=name_of)
def test_no_frame_of_a_message_ends_a_chunk(path: Path) -> None:
    recording = Recording(path)
    decoder = recording.adapter.decoder(recording.carried, recording.request)
    for _, last in chunks(decoder, path.read_bytes()):
        assert last is None or not last[0].data.startswith(b'{"type":"stream_event"') or "retracted" in {
            event.type for event in last[1]
        }  # fmt: skip


def test_what_a_turn_hangs_on_ends_its_chunk() -> None:
    found: set[str] = set()
    for path in PATHS:
        recording = Recording(path)
        decoder = recording.adapter.decoder(recording.carried, recording.request)
        for told, _ in chunks(decoder, path.read_bytes()):
            found |= {event.type for _, events in told for event in events}
    assert found == {
        "content_delta", "message", "message_start", "message_stop", "status", "tool_use", "tool_result", "usage",
    }  # fmt: skip


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
def test_whatever_the_frames_both_ways_give_the_same_events(frames: Sequence[object]) -> None:
    data = b"".join(json.dumps(frame, separators=(",", ":")).encode() + b"\n" for frame in frames)
    assert by_chunk(ClaudeDecoder(Carried(0.0)), data) == by_line(ClaudeDecoder(Carried(0.0)), data)


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
    assert by_chunk(ClaudeDecoder(Carried(0.0)), data) == by_line(ClaudeDecoder(Carried(0.0)), data)
