"""The claude decoder on lines that no good CLI prints: nothing raises, nothing is lost."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clisup.backends.base import Carried, Decoded
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.backends.claude.rare_frames import SILENT, STREAM_SILENT
from clisup.model.events import ContentDelta, EventBase, Unparsed
from clisup.model.lines.framing import Line, LineFramer
from tests.journals import encode_event

PATHS = sorted((Path(__file__).parents[1] / "recordings" / "claude").glob("*/*.jsonl"))
RECORDINGS = [raw for path in PATHS if (raw := path.read_bytes()[:200_000])]
PARENT = {"parent_tool_use_id": None}


def line(data: bytes | dict[str, Any], *, complete: bool = True) -> Line:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Line(0, len(raw) + complete, raw, complete=complete)


def run(*frames: bytes | dict[str, Any], carried: float | None = 0.0) -> list[Any]:
    decoder = ClaudeDecoder(Carried(carried))
    return [event for frame in frames for event in decoder.decode(line(frame)).events]


def only_unparsed(data: bytes | dict[str, Any], *, complete: bool = True) -> Unparsed:
    result = ClaudeDecoder(Carried(0.0)).decode(line(data, complete=complete))
    (event,) = result.events
    assert isinstance(event, Unparsed)
    assert result.terminal is None
    return event


def stream(event: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, **PARENT, **more}


def start(message_id: str) -> dict[str, Any]:
    return stream({"type": "message_start", "message": {"id": message_id, "model": "m", "usage": {"input_tokens": 3}}})


def delta(text: str, index: int = 0) -> dict[str, Any]:
    return stream({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})


def assistant(message_id: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": message_id, "content": list(blocks)}, **PARENT}


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "total_cost_usd": 0.5}


def write(event: EventBase) -> bytes:
    return encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")


@pytest.mark.fault(28)
@pytest.mark.parametrize(
    "noise",
    [b"hello", b"{", b"\x00", b"\xff\xfe", b"1", b"null", b'"text"', b"[]", b"{}", b'{"type":5}', b'{"type":"system"}',
     b'{"a":NaN}', b"\xef\xbb\xbf[]", b'{"type":"user"}', b"[" * 100_000, b'{"type":' * 100_000,
     b'{"type":"result"}', b'{"type":"stream_event","event":{"type":"content_block_delta"}}',
     b'{"type":"assistant","message":{"content":[{"type":"text","text":5}]}}'],
)  # fmt: skip
def test_noise_and_wrong_shapes_are_kept_as_malformed(noise: bytes) -> None:
    event = only_unparsed(noise)
    assert (event.reason, event.bytes) == ("malformed", len(noise))
    assert len(event.excerpt) <= 200
    write(event)


@pytest.mark.fault(29)
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "tomorrow", "x": 1},
        {"type": "system", "subtype": "tomorrow"},
        stream({"type": "tomorrow"}),
        stream({"type": "content_block_delta", "index": 0, "delta": {"type": "tomorrow_delta"}}),
        {"type": "control_request", "request_id": "r", "request": {"subtype": "tomorrow"}},
    ],
)
def test_what_a_later_version_may_say_is_kept_as_unknown(frame: dict[str, Any]) -> None:
    assert only_unparsed(frame).reason == "unknown_type"


@pytest.mark.fault(29)
def test_unknown_fields_and_blocks_are_carried_along() -> None:
    (message,) = run({**assistant("m", {"type": "tomorrow", "id": "x", "rest": [1]}), "tomorrow": {}})
    assert [(block.kind, block.native_kind) for block in message.blocks] == [("other", "tomorrow")]


@pytest.mark.fault(46)
def test_a_tool_input_nested_too_deep_to_be_written_is_kept_raw() -> None:
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"a": nested}
    event = only_unparsed(assistant("m", {"type": "tool_use", "id": "t", "name": "n", "input": nested}))
    assert event.reason == "malformed"


@pytest.mark.fault(23)
def test_an_oversize_line_says_how_long_it_was() -> None:
    event = ClaudeDecoder(Carried(0.0)).decode(Line(10, 5010, b"{" * 512, oversize=True)).events[0]
    assert isinstance(event, Unparsed)
    assert (event.reason, event.bytes, event.excerpt) == ("oversize", 5000, "{" * 200)


@pytest.mark.fault(26)
def test_a_last_line_without_newline_is_parsed_if_whole_and_truncated_if_not() -> None:
    whole = json.dumps(RESULT).encode()
    decoder = ClaudeDecoder(Carried(0.0))
    (cut,) = decoder.decode(line(whole[:-4], complete=False)).events
    assert isinstance(cut, Unparsed)
    assert cut.reason == "truncated"
    assert decoder.decode(line(whole, complete=False)).terminal is not None


@pytest.mark.fault(27)
def test_a_line_separator_inside_json_is_text() -> None:
    framer = LineFramer()
    (one,) = framer.feed(json.dumps(delta("a\u2028b\r"), ensure_ascii=False).encode() + b"\n")
    (event,) = ClaudeDecoder(Carried(0.0)).decode(one).events
    assert isinstance(event, ContentDelta)
    assert event.text == "a\u2028b\r"


@pytest.mark.fault(25)
def test_invalid_utf8_inside_a_frame_is_replaced_and_the_frame_is_read() -> None:
    (event,) = run(json.dumps(delta("a!b")).encode().replace(b"!", b"\xff"))
    assert event.text == "a\ufffdb"


@pytest.mark.fault(25)
@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["a\ud83d", "\ude00b"], ["a", "\U0001f600b"]),
        (["\ud83d", "\ude00"], ["\U0001f600"]),
        (["\ud83d", "x"], ["\ufffdx"]),
        (["\ude00"], ["\ufffd"]),
        (["\ud83d\ud83d", "\ude00"], ["\ufffd", "\U0001f600"]),
    ],
)
def test_halves_of_a_character_are_joined_across_deltas(texts: list[str], shown: list[str]) -> None:
    assert [event.text for event in run(start("m"), *map(delta, texts))[1:]] == shown


@pytest.mark.fault(25)
def test_a_half_that_is_never_joined_becomes_one_unknown_character() -> None:
    events = run(start("m"), delta("a\ud83d"), stream({"type": "content_block_stop", "index": 0}))
    assert [event.text for event in events[1:]] == ["a", "\ufffd"]


@pytest.mark.fault(25)
def test_lone_halves_elsewhere_do_not_cost_the_frame() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": "bad \ud83d, escaped \\ud83d"}
    (event,) = run({"type": "user", "message": {"content": [result]}, **PARENT})
    assert event.content == "bad \ufffd, escaped \\ud83d"


@pytest.mark.fault(65)
@pytest.mark.parametrize(
    "after",
    [start("m2"), assistant("m2", {"type": "text", "text": "other"}), RESULT],
    ids=["a new message", "a message without stream", "the result"],
)
def test_shown_text_that_nothing_confirms_is_retracted(after: dict[str, Any]) -> None:
    events = run(start("m1"), delta("shown"), after)
    retracted = [event for event in events if event.type == "retracted"]
    assert [(event.message_id, event.from_index) for event in retracted] == [("m1", 0)]


@pytest.mark.fault(65)
def test_only_the_blocks_that_were_not_confirmed_are_retracted() -> None:
    abandoned = {"api_message_id": "m1", "from_block_index": 1}
    events = run(
        start("m1"),
        delta("kept"),
        assistant("m1", {"type": "text", "text": "kept"}),
        delta("lost", index=1),
        stream({"type": "message_stop"}, abandoned_blocks=abandoned),
        start("m2"),
    )
    assert [event.from_index for event in events if event.type == "retracted"] == [1]


def test_a_subagent_does_not_confirm_or_retract_the_main_text() -> None:
    inner = {**assistant("inner", {"type": "text", "text": "x"}), "parent_tool_use_id": "toolu"}
    events = run(start("m1"), delta("shown"), inner, assistant("m1", {"type": "text", "text": "shown"}), RESULT)
    assert "retracted" not in [event.type for event in events]


@pytest.mark.fault(75)
@pytest.mark.parametrize(
    ("fields", "carried", "cost", "total"),
    [
        ({"total_cost_usd": 0.5}, 0.2, 0.3, 0.5),
        ({"total_cost_usd": 0.5}, None, None, 0.5),
        ({"total_cost_usd": 0.1}, 0.4, 0.1, 0.1),
        ({"total_cost_usd": 0, "is_error": True}, 0.4, 0.0, 0.4),
        ({"total_cost_usd": None}, 0.4, None, 0.4),
        ({"total_cost_usd": None}, 0.0, None, 0.0),
        ({"total_cost_usd": None, "model_usage_since_last_result": {"m": {"inputTokens": 7}}}, 0.0, None, 0.0),
        ({"total_cost_usd": 0.5, "model_usage_since_last_result": {"m": {"inputTokens": 7}}}, 0.2, 0.3, 0.5),
        ({"total_cost_usd": 0.5, "model_usage_since_last_result": {"m": {"costUSD": 0.25}}}, None, 0.25, 0.5),
        ({"total_cost_usd": 0.5, "model_usage_since_last_result": {}}, 0.2, 0.0, 0.5),
    ],
)
def test_the_cost_of_a_turn_is_told_from_a_running_total(
    fields: dict[str, Any], carried: float | None, cost: float | None, total: float
) -> None:
    terminal = ClaudeDecoder(Carried(carried)).decode(line({**RESULT, **fields})).terminal
    assert terminal is not None
    assert terminal.cost_usd == pytest.approx(cost)
    assert terminal.cost_total_usd == pytest.approx(total)


@pytest.mark.fault(33)
def test_a_second_result_counts_from_the_first() -> None:
    decoder = ClaudeDecoder(Carried(0.0))
    first, second = (decoder.decode(line({**RESULT, "total_cost_usd": cost})).terminal for cost in (0.5, 0.7))
    assert first is not None
    assert second is not None
    assert first.cost_usd == 0.5
    assert second.cost_usd == 0.2, "not 0.19999999999999996"


def test_a_synthetic_error_that_the_turn_got_over_leaves_no_trace() -> None:
    synthetic = {**assistant("x", {"type": "text", "text": "API Error"}), "error": "server_error"}
    synthetic["message"]["model"] = "<synthetic>"
    decoder = ClaudeDecoder(Carried(0.0))
    for frame in (synthetic, assistant("m", {"type": "text", "text": "went on"})):
        decoder.decode(line(frame))
    terminal = decoder.decode(line({**RESULT, "is_error": True, "result": ""})).terminal
    assert terminal is not None
    assert terminal.error is not None
    assert terminal.error.kind == "crashed"


def test_a_tool_result_of_mixed_blocks_has_its_text_and_its_image() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    block = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "seen"}, image]}
    (event,) = run({"type": "user", "message": {"content": [block]}, "parent_tool_use_id": "outer"})
    assert (event.content, event.is_error, event.parent_tool_use_id) == ("seen", False, "outer")
    assert [block.kind for block in event.blocks] == ["text", "image"]


def test_a_permission_prompt_of_a_live_process_is_an_approval() -> None:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
    asked, withdrawn = run(
        {"type": "control_request", "request_id": "r1", "request": request},
        {"type": "control_cancel_request", "request_id": "r1"},
    )
    assert (asked.type, asked.approval_id, asked.tool_name) == ("approval_requested", "0:r1", "Bash")
    assert (withdrawn.type, withdrawn.decision) == ("approval_resolved", "cancelled")


def test_a_task_of_an_earlier_turn_has_its_kind_in_the_decoder_of_a_later_one() -> None:
    """Only the first frames of a task name it."""
    first = ClaudeDecoder(Carried(0.0))
    task = {"task_id": "b1", "task_type": "local_bash", "description": "sleep"}
    first.decode(line({"type": "system", "subtype": "background_tasks_changed", "tasks": [task]}))
    later = ClaudeDecoder(Carried(0.0, background=first.background))
    ended = {
        "type": "system",
        "subtype": "task_notification",
        "task_id": "b1",
        "status": "completed",
        "summary": "done",
    }
    (event,) = later.decode(line(ended)).events
    assert (event.kind, event.state) == ("local_bash", "completed") and later.background == {}


def test_background_tasks_are_announced_once_and_ended_once() -> None:
    task = {"task_id": "b1", "task_type": "local_bash", "description": "run"}
    changed = {"type": "system", "subtype": "background_tasks_changed"}
    ambient = {"task_id": "a1", "task_type": "watch", "ambient": True}
    events = run({**changed, "tasks": [task, ambient]}, {**changed, "tasks": [task]}, {**changed, "tasks": []})
    assert [(event.task_id, event.state) for event in events] == [("b1", "running"), ("b1", "ended")]


def test_a_note_on_a_task_that_had_not_ended_before_a_resume_is_not_the_turns_end() -> None:
    """2.1.329 says this, with an init of its own, before it looks at the prompt."""
    noted = {
        "type": "result", "subtype": "success", "is_error": False, "num_turns": 0, "result": "", "total_cost_usd": 0,
        "origin": {"kind": "task-notification"},
    }  # fmt: skip
    decoder = ClaudeDecoder(Carried(cost_usd=0.0))
    assert decoder.decode(line(noted)).terminal is None
    followed = decoder.decode(line({**noted, "num_turns": 1, "result": "done"})).terminal
    assert followed is not None and followed.follow_up and followed.text == "done"


@pytest.mark.fault(29)
@settings(max_examples=400)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_writable_event_or_nothing_but_never_an_exception(data: bytes) -> None:
    decoder = ClaudeDecoder(Carried(None))
    framer = LineFramer()
    for one in [*framer.feed(data), *filter(None, [framer.close()])]:
        result = decoder.decode(one)
        assert result.events or not one.data.strip()
        for event in result.events:
            write(event)


@pytest.mark.fault(24)
@pytest.mark.skipif(not RECORDINGS, reason="no recordings in this checkout")
@settings(max_examples=60)
@given(st.data())
def test_any_split_of_the_stream_gives_the_same_events(data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(RECORDINGS))[:60_000]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=20)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decode_pieces(pieces) == decode_pieces([raw])


def decode_pieces(pieces: list[bytes]) -> list[Decoded]:
    framer, decoder = LineFramer(), ClaudeDecoder(Carried(0.0))
    lines = [one for piece in pieces for one in framer.feed(piece)]
    last = framer.close()
    return [decoder.decode(one) for one in [*lines, *([last] if last else [])]]


@pytest.mark.fault(29)
@pytest.mark.parametrize("number", [2**53 + 1, -(10**30), 10**400, -(10**4000), 1e300])
def test_a_number_that_nobody_can_reckon_with_is_an_unknown_one(number: float) -> None:
    (retry,) = run({"type": "system", "subtype": "api_retry", "retry_delay_ms": number, "attempt": number})
    assert (retry.delay_s, retry.attempt if isinstance(number, int) else None) == (None, None)
    costs = {
        "total_cost_usd": number,
        "model_usage_since_last_result": {"m": {"costUSD": number, "inputTokens": number}},
    }
    decoder = ClaudeDecoder(Carried(0.0))
    terminal = decoder.decode(line({**RESULT, **costs})).terminal
    assert terminal is not None and (terminal.cost_usd, terminal.usage.input_tokens) == (None, None)
    terminal = decoder.decode(line({**RESULT, "total_cost_usd": number})).terminal
    assert terminal is not None and terminal.cost_usd is None


def test_token_counts_that_nobody_can_add_up_are_kept_as_they_came() -> None:
    frame = stream({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10**400}})
    assert only_unparsed(frame).reason == "malformed"


ODD: list[Any] = [None, 0, -1, 10**30, 1.5, True, "", "odd", "\ud83d", [], [1], {}, {"type": "odd"}, [[]], [{}]]


@pytest.mark.fault(29)
@pytest.mark.skipif(not RECORDINGS, reason="no recordings in this checkout")
@settings(max_examples=600)
@given(st.data())
def test_a_frame_that_lost_or_changed_a_field_raises_nothing_and_is_not_lost(data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(RECORDINGS))
    frames = [json.loads(one) for one in raw.split(b"\n")[:-1] if len(one) < 20_000]
    at = data.draw(st.integers(0, len(frames) - 1))
    frames[at] = mutate(frames[at], data)
    decoder = ClaudeDecoder(Carried(0.0))
    for number, frame in enumerate(frames):
        result = decoder.decode(line(frame))
        if number == at:
            assert result.events or result.terminal or is_silent(frame), frame
        for event in result.events:
            write(event)


def mutate(frame: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    changed = copy.deepcopy(frame)
    node: Any = changed
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        child = node[key]
        if isinstance(child, dict | list) and child and data.draw(st.booleans()):
            node = child
            continue
        if data.draw(st.booleans()) and isinstance(node, dict):
            del node[key]
        else:
            node[key] = data.draw(st.sampled_from(ODD))
        return changed


def is_silent(frame: dict[str, Any]) -> bool:
    """The frames that are meant to give no event, as the tables say it."""
    kind = frame["type"]
    if kind == "stream_event":
        event = frame["event"]
        inner = event.get("delta", {})
        texts = [inner.get(name) for name in ("text", "thinking", "partial_json") if inner.get(name)]
        held = all(text == "\ud83d" for text in texts)  # an empty delta, or half of a character
        return event["type"] in STREAM_SILENT or inner.get("type") in STREAM_SILENT or held
    if kind == "user":  # a subagent's prompt, the caller's own, or a message of nothing
        return bool(
            frame.get("parent_tool_use_id") is not None or frame.get("isReplay") or not frame["message"]["content"]
        )
    if kind == "result":  # the end of a sub-agent's work counts with the next result
        return isinstance(frame.get("origin"), dict)
    key = f"system/{frame.get('subtype')}" if kind == "system" else kind
    return key in SILENT or key == "system/background_tasks_changed"


def test_every_silence_has_its_reason() -> None:
    assert all(SILENT.values())
    assert all(STREAM_SILENT.values())
    for key in SILENT:
        kind, _, subtype = key.partition("/")
        assert run({"type": kind, "subtype": subtype} if subtype else {"type": kind}) == []


def test_deltas_are_told_apart_by_block_and_message() -> None:
    events = run(start("m"), delta("a", 0), delta("b", 3))
    assert [(e.message_id, e.index) for e in events if isinstance(e, ContentDelta)] == [("m", 0), ("m", 3)]
