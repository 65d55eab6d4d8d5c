"""Long lines made short: the same events and the same blobs as of the line in one piece, step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.backends.codex.exec import CodexExecDecoder
from clisup.backends.gemini.decoder import GeminiDecoder
from clisup.backends.qwen.decoder import QwenDecoder
from clisup.model.lines.framing import OPEN, Line, LineFramer
from clisup.model.lines.long_line import HEAD, SHORT_LINE, SLICE, shorten
from tests.backends.long_texts import in_pieces, make_smaller, short, told

LIMIT = 16 * 1024
"""An inline limit for tests: strings need not be as long as by default to be cut."""
DECODERS = {
    "claude": lambda: ClaudeDecoder(Carried()),
    "qwen": lambda: QwenDecoder(Carried()),
    "gemini": GeminiDecoder,
    "codex-exec": lambda: CodexExecDecoder(None, LaunchRequest(("codex",), "", None, False, "/")),
}


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def both(
    kind: str, data: bytes, *, size: int = SLICE, complete: bool = True, limit: int = LIMIT
) -> tuple[bool, list[Any], list[Any]]:
    """Was it cut, and what becomes of the line in one piece, and of the short one; then of a line after each."""
    whole, other = DECODERS[kind](), DECODERS[kind]()
    line = in_pieces(data, size=size, complete=complete)
    made, joined = short(line, other, over=limit), line.joined()
    after = Line(
        line.end, line.end + 20, b'{"type":"result","subtype":"success","is_error":true,"result":"no","errors":[]}'
    )
    return (
        made.cuts is not None,
        [told(whole.decode(joined), joined, limit), told(whole.decode(after), after, limit)],
        [told(other.decode(made), made, limit), told(other.decode(after), after, limit)],
    )


def frame_bytes(frame: Any, *, escaped: bool = False) -> bytes:
    return json.dumps(frame, ensure_ascii=escaped).encode("utf-8", "surrogatepass")


def tool_result(content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": "t", "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block | more]}, "parent_tool_use_id": None}


def assistant(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m", "model": "x", "content": list(blocks)} | more}


def delta(kind: str, field: str, text: str) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: text}}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": None}


LONG = 'abc é\n\t"quoted" \\ back 😀 {[ x' * 6000  # more than HEAD and LIMIT
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 40_000}}
CUT = {
    "tool result": tool_result(LONG),
    "failed tool": tool_result(LONG, is_error=True),
    "told twice": tool_result(LONG) | {"tool_use_result": {"stdout": LONG, "lines": [LONG]}},
    "blocks": tool_result([{"type": "text", "text": "a"}, {"type": "text", "text": LONG}]),
    "image": tool_result([{"type": "text", "text": "an image"}, IMAGE]),
    "two images": tool_result([IMAGE, IMAGE]),
    "text": assistant({"type": "text", "text": LONG}),
    "thinking": assistant({"type": "thinking", "thinking": LONG, "signature": "EqQB"}),
    "tool use": assistant({"type": "tool_use", "id": "t", "name": "Write", "input": {"deep": [{"content": LONG}]}}),
    "two in one": assistant({"type": "tool_use", "id": "t", "name": "Edit", "input": {"a": LONG, "b": LONG}}),
    "text delta": delta("text_delta", "text", LONG),
    "thinking delta": delta("thinking_delta", "thinking", LONG),
    "input delta": delta("input_json_delta", "partial_json", LONG),
    "user text": {"type": "user", "message": {"role": "user", "content": LONG}},
    "interrupted": {"type": "user", "message": {"content": [{"type": "text", "text": "[Request interrupted by user" + LONG}]}},
    "persisted": tool_result("<persisted-output>" + LONG),
}  # fmt: skip
KEPT = {
    "synthetic": assistant({"type": "text", "text": LONG}, model="<synthetic>"),
    "api error": assistant({"type": "text", "text": LONG}) | {"is_api_error_message": True},
    "result": {"type": "result", "subtype": "success", "is_error": False, "result": LONG},
    "unknown type": {"type": "news", "message": {"content": LONG}},
    "system": {"type": "system", "subtype": "init", "cwd": LONG},
    "key": tool_result("x") | {"tool_use_result": {LONG: 1}},
    "no frame": [LONG],
    "marks of its own": tool_result("\ufdd07-0\ufdd1" + LONG),
    "a mark in a key": tool_result(LONG) | {"\ufdd0": 1},
    "signature": assistant({"type": "thinking", "thinking": "", "signature": LONG}),
    "small things": tool_result([{"type": "text", "text": "word"}] * 30_000),
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("escaped", [False, True])
def test_what_a_decoder_only_passes_on_is_cut_and_nobody_can_tell(name: str, escaped: bool) -> None:
    cut, whole, made = both("claude", frame_bytes(CUT[name], escaped=escaped))
    assert cut
    assert made == whole


@pytest.mark.parametrize("name", KEPT)
def test_what_it_reads_or_does_not_know_stays_as_it_is(name: str) -> None:
    cut, whole, made = both("claude", frame_bytes(KEPT[name]))
    assert not cut
    assert made == whole


@pytest.mark.parametrize(
    ("kind", "frame", "cuts"),
    [
        ("qwen", tool_result(LONG), True),
        ("qwen", tool_result(LONG, is_error=True), False),
        ("qwen", assistant({"type": "text", "text": LONG}), False),
        ("gemini", {"type": "tool_result", "tool_id": "t", "status": "success", "output": LONG}, True),
        ("gemini", {"type": "message", "role": "assistant", "content": LONG, "delta": True}, False),
        ("codex-exec", {"type": "item.completed", "item": {"id": "i", "type": "command_execution", "command": "x",
                        "aggregated_output": LONG, "exit_code": 1, "status": "failed"}}, True),
        ("codex-exec", {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": LONG}}, False),
    ],
)  # fmt: skip
def test_other_clis_have_such_strings_too(kind: str, frame: dict[str, Any], cuts: bool) -> None:
    cut, whole, made = both(kind, frame_bytes(frame))
    assert (cut, made) == (cuts, whole)


@pytest.mark.parametrize("chars", [LIMIT, LIMIT + 1])
def test_a_payload_that_stays_in_its_event_is_not_cut(chars: int) -> None:
    data = frame_bytes(tool_result("😀" * chars), escaped=True)
    cut, whole, made = both("claude", data, limit=chars)
    assert made == whole and not cut
    assert OPEN not in repr(made)


BAD = {
    "half a pair": json.dumps(tool_result("\ud83d" + LONG)).encode(),
    "half a pair in the middle": json.dumps(tool_result(LONG + "\ud83d" + LONG)).encode(),
    "no utf-8": frame_bytes(tool_result(LONG)).replace(b"quoted", b"quo\xffed", 3000),
    "a control character": frame_bytes(tool_result(LONG)).replace(b"back", b"b\x01ck"),
    "an escape that is none": frame_bytes(tool_result(LONG)).replace(b"\\n", b"\\q"),
    "a backslash outside": b'{"type":"user", \\" ' + frame_bytes(tool_result(LONG))[1:],
    "cut off in the string": frame_bytes(tool_result(LONG))[:150_000],
    "cut off after it": frame_bytes(tool_result(LONG))[:-3],
    "something after it": frame_bytes(tool_result(LONG)) + b" x",
    "an error after it": frame_bytes(tool_result(LONG))[:-1] + b',"type":7}',
    "the same key again": frame_bytes(tool_result(LONG))[:-1] + b',"message":{"content":[]}}',
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("complete", [True, False])
def test_a_line_that_is_broken_is_broken_in_the_same_way(name: str, complete: bool) -> None:
    _, whole, made = both("claude", BAD[name], complete=complete)
    assert made == whole


GOOD = ['"', "\\", "é", "€", "😀", "x", "\n", "\x00", "u12", "\\u00e9", "{", "]"]


def texts_of(parts: list[str]) -> st.SearchStrategy[str]:
    runs = st.lists(st.tuples(st.sampled_from(parts), st.integers(1, 40)), min_size=1, max_size=12)
    return runs.map(lambda drawn: "".join(part * times for part, times in drawn))


good = texts_of(GOOD)
texts = good | good | good | texts_of([*GOOD, "\ud83d", "\udc00", "\ufdd0"])
values = st.recursive(st.none() | st.booleans() | texts, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@st.composite
def lines(draw: st.DrawFn) -> tuple[bytes, int]:
    """A frame whose strings are long, as JSON writes it in one of two ways, and perhaps with a byte changed."""
    text, other = (piece * (draw(st.integers(900, 9000)) // len(piece) + 1) for piece in (draw(texts), draw(texts)))
    make = draw(
        st.sampled_from([
            lambda: tool_result(text),
            lambda: tool_result(text) | {"tool_use_result": [{"stdout": text}, other]},
            lambda: tool_result([{"type": "text", "text": text}, {"type": "text", "text": other}]),
            lambda: tool_result([{"type": "text", "text": text}, {"type": "news", "text": other}]),
            lambda: {"type": "user", "message": {"content": text}},
            lambda: assistant({"type": "text", "text": text}, {"type": "thinking", "thinking": other}),
            lambda: assistant({"type": "tool_use", "id": "i", "name": "n", "input": {text: [other], "b": text}}),
            lambda: delta("text_delta", "text", text),
            lambda: {"type": "result", "is_error": False, "result": text},
        ])
    )  # fmt: skip
    more = draw(st.just({}) | values.map(lambda value: {"more": value}))
    data = frame_bytes(make() | more, escaped=draw(st.booleans()))
    if draw(st.sampled_from([False, False, True])):
        at = draw(st.integers(0, len(data) - 1))
        data = data[:at] + draw(st.sampled_from([b"", b'"', b"\\", b"\xff", b"}", b"\x01"])) + data[at + 1 :]
    return data, draw(st.sampled_from([5, 64, 257, 1000]))


@pytest.fixture
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    make_smaller(monkeypatch)


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(lines())
def test_any_line_gives_the_same_both_ways(smaller: None, drawn: tuple[bytes, int]) -> None:
    data, size = drawn
    cut, whole, made = both("claude", data, size=size, limit=400)
    event("cut" if cut else "in one piece")
    assert made == whole


def test_each_step_is_small_and_little_is_left() -> None:
    data = frame_bytes(tool_result(LONG * 20) | {"tool_use_result": LONG * 20})
    line = in_pieces(data)
    steps = shorten(line, ClaudeDecoder(Carried()).passes_on, over=256 * 1024, most_values=100_000)
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Line = done.value
            break
        taken += 1
    assert taken >= len(data) // SLICE
    assert len(made.data) < 2 * (HEAD + 3 * SLICE)
    assert made.size == len(data)


def test_a_line_with_too_much_left_is_not_read_to_its_end() -> None:
    data = frame_bytes(tool_result([{"type": "text", "text": "word"}] * 200_000))
    line = in_pieces(data)
    taken = sum(1 for _ in shorten(line, ClaudeDecoder(Carried()).passes_on, over=LIMIT, most_values=100_000))
    assert taken <= SHORT_LINE // SLICE + 1 < len(line.pieces)


def test_the_framer_gives_a_long_line_in_pieces_and_what_is_around_it_as_ever() -> None:
    data = b"a\n" + b"x" * 1000 + b"\nb\n"
    framer = LineFramer(pieces_over=100)
    lines_: Sequence[Line] = [line for piece in pieces_of(data, 64) for line in framer.feed(piece)]
    assert [line.joined() for line in lines_] == LineFramer().feed(data)
    assert [bool(line.pieces) for line in lines_] == [False, True, False]
    assert lines_[1].first(70) == b"x" * 70
