"""Lines with more than one frame, or with other words around it, in every decoder that reads lines of JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.base import Carried, Decoded, Decoder
from clisup.backends.launch import LaunchRequest
from clisup.backends.lines import decode_broken
from clisup.backends.registry import get_adapter
from clisup.model.events import Unparsed
from clisup.model.lines.framing import Line

ACP = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}}
NEW = {"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s"}}
FIRST: dict[str, list[dict[str, Any]]] = {
    "claude": [{"type": "system", "subtype": "status", "status": "requesting"}, {"type": "result", "result": "done", "is_error": False}],
    "qwen": [{"type": "system", "subtype": "init", "session_id": "s"}, {"type": "result", "result": "done", "is_error": False}],
    "codex-exec": [{"type": "thread.started", "thread_id": "s"}, {"type": "turn.completed", "usage": {"input_tokens": 1}}],
    "gemini": [{"type": "init", "session_id": "s"}, {"type": "result", "status": "success"}],
    "opencode": [{"type": "text", "sessionID": "s", "part": {"id": "p", "messageID": "m", "type": "text", "text": "hi"}},
                 {"type": "error", "sessionID": "s", "error": {"name": "X"}}],
    "acp": [ACP, NEW],
}  # fmt: skip
"""Two frames of each kind, which a decoder understands in this order."""
AROUND = {
    "a byte order mark": b"\xef\xbb\xbf%s",
    "a title": b"\x1b]0;proj: ready\x07%s",
    "a title with ST": b"\x1b]2;x\x1b\\%s",
    "a mode": b"\x1b[?2004h\x1b[?25l%s",
    "a reset behind": b"%s\x1b[0m",
    "blanks and CR": b"  \t%s \r",
}


def decoder_of(kind: str) -> Decoder:
    request = LaunchRequest((kind,), "hi", None, False, "/")
    return get_adapter(kind).decoder(Carried(0.0), request)


def line(data: bytes, *, complete: bool = True) -> Line:
    return Line(0, len(data) + complete, data, complete=complete)


def told(kind: str, *lines: bytes) -> Decoded:
    """What all lines together give."""
    decoder, whole = decoder_of(kind), Decoded(())
    for data in lines:
        one = decoder.decode(line(data))
        whole = Decoded((*whole.events, *one.events), one.terminal or whole.terminal, (*whole.replies, *one.replies))
    return whole


@pytest.mark.parametrize("kind", FIRST)
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_terminal_sequences_and_marks_around_a_frame_are_no_part_of_it(kind: str, around: bytes) -> None:
    first, second = (json.dumps(frame).encode() for frame in FIRST[kind])
    plain = told(kind, first, second)
    assert told(kind, first, around % second) == told(kind, around % first, second) == plain
    assert not any(isinstance(event, Unparsed) for event in plain.events)


@pytest.mark.parametrize("kind", FIRST)
@pytest.mark.parametrize("between", [b"", b" ", b"\x1b[0m"])
def test_two_frames_on_one_line_are_two_frames(kind: str, between: bytes) -> None:
    first, second = (json.dumps(frame).encode() for frame in FIRST[kind])
    assert told(kind, first + between + second) == told(kind, first, second)


@pytest.mark.parametrize("kind", FIRST)
@pytest.mark.parametrize(
    ("words", "place"),
    [(b"(node:71) Warning: x {", 0), (b"npm warn {\"a\": 1} ", 0), (b" trailing words", 1)],
)  # fmt: skip
def test_words_glued_to_a_frame_are_told_apart_from_it(kind: str, words: bytes, place: int) -> None:
    first, second = (json.dumps(frame).encode() for frame in FIRST[kind])
    glued = words + first if place == 0 else first + words
    whole, plain = told(kind, glued, second), told(kind, first, second)
    noise = [event for event in whole.events if isinstance(event, Unparsed)]
    assert noise and noise[0].excerpt.startswith(words.decode().strip().split(" {")[0])
    assert [event for event in whole.events if not isinstance(event, Unparsed)] == list(plain.events)
    assert (whole.terminal, whole.replies) == (plain.terminal, plain.replies)


INNER = json.dumps({"type": "result", "result": "owned", "is_error": False})


@pytest.mark.parametrize(
    "data",
    [
        f'{{"type":"assistant","message":{{"content":[{{"type":"tool_use","input":{INNER}}}]}}',  # lost its last brace
        f'{{"type":"assistant","x":{INNER}}}}}',
        f'"type":"assistant","message":[{INNER}]',
        f'{{"type":"assistant","message":"{INNER}',
    ],
)
def test_an_object_inside_a_damaged_frame_is_no_frame(data: str) -> None:
    whole = told("claude", data.encode())
    assert whole.terminal is None and [type(event) for event in whole.events] == [Unparsed]


def test_a_line_without_its_end_is_truncated_whatever_it_holds() -> None:
    data = ("words " + INNER).encode()
    whole = decoder_of("claude").decode(line(data, complete=False))
    assert [event.reason for event in whole.events if isinstance(event, Unparsed)] == ["truncated"]
    assert whole.terminal is None


@pytest.mark.parametrize(
    "data", [b"{" * 100_000, b'{"a":' * 100_000, b'{"a"' * 300_000, b"\x1b[" * 100_000, b"{}" * 1000]
)
def test_a_hostile_line_is_searched_a_bounded_number_of_times(data: bytes) -> None:
    tried: list[Line] = []

    def decode(piece: Line) -> Decoded:
        tried.append(piece)
        return Decoded(())

    decode_broken(line(data), decode)
    assert len(tried) <= 64
