"""Chat Completions, chunk by chunk: text, thinking, parallel calls, usage, ends, errors and cuts."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.worker.apis.chat_stream import ChatStream
from clisup.worker.apis.events import StreamError
from tests.worker.streams import called, chat, chunk, message

USAGE = {
    "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 5},
}  # fmt: skip


def test_text_is_one_block_in_pieces_and_usage_comes_with_the_end() -> None:
    events = chat(
        chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo."}),
        chunk({}, "stop"), chunk(usage=USAGE),
    )  # fmt: skip
    assert [event["type"] for event in events] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    answer = message(events)
    assert (answer.content, answer.stop_reason) == ([{"type": "text", "text": "Hello."}], "end_turn")
    assert (answer.head["id"], answer.head["model"]) == ("chat-1", "m-1")
    assert answer.usage == {
        "input_tokens": 30, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 60, "output_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 5},
    }  # fmt: skip


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_thinking_in_a_block_of_its_own(field: str) -> None:
    answer = message(
        chat(chunk({field: "Let me "}), chunk({field: "see."}), chunk({"content": "42"}), chunk({}, "stop"))
    )
    assert [(block["type"], block.get("thinking") or block.get("text")) for block in answer.content] == [
        ("thinking", "Let me see."), ("text", "42"),
    ]  # fmt: skip
    assert answer.content[0]["signature"] == field


def test_parallel_calls_whose_arguments_come_in_turns_are_two_blocks() -> None:
    events = chat(
        chunk({"content": "I look."}), chunk(called(0, id="c0", name="read")), chunk(called(1, id="c1", name="list")),
        chunk(called(0, '{"path":')), chunk(called(1, "{}")), chunk(called(0, ' "a"}')), chunk({}, "tool_calls"),
    )  # fmt: skip
    answer = message(events)
    assert answer.content[1:] == [
        {"type": "tool_use", "id": "c0", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "c1", "name": "list", "input": {}},
    ]
    assert answer.stop_reason == "tool_use"


def test_a_server_that_names_a_call_in_each_chunk_gives_one_block() -> None:
    whole = [chunk(called(0, piece, id="c0", name="read")) for piece in ('{"a"', ": 1}")]
    assert message(chat(*whole, chunk({}, "tool_calls"))).content == [
        {"type": "tool_use", "id": "c0", "name": "read", "input": {"a": 1}}
    ]


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_why_the_model_ended_is_said_in_claudes_words(finish: str, reason: str) -> None:
    assert message(chat(chunk({"content": "x"}), chunk({}, finish))).stop_reason == reason


def test_a_refusal_is_the_text_of_a_refused_answer() -> None:
    answer = message(chat(chunk({"refusal": "I will not."}), chunk({}, "stop")))
    assert (answer.content, answer.stop_reason) == ([{"type": "text", "text": "I will not."}], "refusal")


def test_usage_that_nobody_told_is_none() -> None:
    events = chat(chunk({"content": "x"}), chunk({}, "stop"))
    assert next(event for event in events if event["type"] == "message_delta")["usage"] == {}


def test_groq_tells_its_usage_in_a_place_of_its_own_and_openrouter_its_cost() -> None:
    assert (
        message(chat(chunk({"content": "x"}), chunk({}, "stop", x_groq={"usage": USAGE}))).usage["output_tokens"] == 20
    )
    stream = ChatStream("m")
    stream.take(chunk({"content": "x"}))
    assert stream.cost_usd is None
    stream.take(chunk(usage={**USAGE, "cost": 0.0125}))
    assert stream.cost_usd == 0.0125


def test_a_stream_that_ends_without_a_reason_was_cut() -> None:
    stream = ChatStream("m")
    stream.take(chunk({"content": "half an ans"}))
    with pytest.raises(StreamError, match="was cut") as caught:
        stream.end()
    assert caught.value.code == "cut_stream"


@pytest.mark.parametrize(
    ("error", "word", "status"),
    [
        ({"message": "overloaded", "code": 503}, None, 503),
        (
            {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"},
            "rate_limit_exceeded",
            None,
        ),
        ("it broke", None, None),
    ],
)
def test_an_error_in_the_middle_of_the_stream_is_one(error: Any, word: str | None, status: int | None) -> None:
    stream = ChatStream("m")
    stream.take(chunk({"content": "half"}))
    with pytest.raises(StreamError) as caught:
        stream.take(chunk(error=error))
    assert (caught.value.code, caught.value.status) == (word, status)
    assert caught.value.message in str(error)


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "7", "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_as_broken(arguments: str) -> None:
    folded = message(chat(chunk(called(0, arguments, id="c", name="read")), chunk({}, "tool_calls")))
    assert folded.broken == {"c": arguments}
    assert folded.content[0]["input"] == {}


def test_calls_with_one_index_but_ids_of_their_own_are_two_and_arguments_may_come_as_an_object() -> None:
    stream = ChatStream("m")
    calls = [
        {"id": "a", "function": {"name": "read", "arguments": {"x": 1}}},
        {"id": "b", "function": {"name": "list"}},
    ]
    events = stream.take({"id": "1", "choices": [{"delta": {"tool_calls": calls}, "finish_reason": "stop"}]})
    answer = message([*events, *stream.end()])
    assert [(call["id"], call["name"], call["input"]) for call in answer.calls] == [
        ("a", "read", {"x": 1}),
        ("b", "list", {}),
    ]
    assert answer.stop_reason == "tool_use"


def test_a_call_without_an_id_gets_one_that_no_other_answer_has() -> None:
    stream = ChatStream("m")
    call = {"function": {"name": "read", "arguments": "{}"}}
    events = stream.take({"id": "chat-7", "choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]})
    assert message([*events, *stream.end()]).calls[0]["id"] == "call_chat-7_0.0"


@pytest.mark.parametrize("chunk", [{"choices": 7}, {"choices": [7]}, {"usage": 3}])
def test_a_chunk_of_an_unknown_shape_is_an_error_of_the_stream(chunk: Any) -> None:
    with pytest.raises(StreamError) as caught:
        ChatStream("m").take(chunk)
    assert caught.value.code == "malformed_chunk"
