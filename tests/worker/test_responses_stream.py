"""The Responses API, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.worker.apis.events import StreamError
from clisup.worker.apis.responses_stream import ResponsesStream, reasoning_item
from tests.worker.streams import message, response, responses, told

CREATED = told("response.created", response=response())
USAGE = {
    "input_tokens": 50, "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0}, "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 59,
}  # fmt: skip
COMPLETED = told("response.completed", response=response(usage=USAGE))


def text(delta: str, index: int = 0) -> dict[str, Any]:
    place = {"item_id": "i", "output_index": index, "content_index": 0}
    return told("response.output_text.delta", **place, delta=delta, logprobs=[])


def call(index: int, name: str) -> dict[str, Any]:
    item = {"type": "function_call", "id": f"fc{index}", "call_id": f"c{index}", "name": name, "arguments": ""}
    return told("response.output_item.added", output_index=index, item=item)


def arguments(index: int, piece: str) -> dict[str, Any]:
    return told("response.function_call_arguments.delta", item_id=f"fc{index}", output_index=index, delta=piece)


def test_text_and_usage() -> None:
    answer = message(responses(CREATED, text("Hel"), text("lo."), COMPLETED))
    assert (answer.content, answer.stop_reason) == ([{"type": "text", "text": "Hello."}], "end_turn")
    assert (answer.head["id"], answer.head["model"]) == ("resp-1", "m-1")
    assert answer.usage == {
        "input_tokens": 30, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 20, "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }  # fmt: skip


def test_thinking_comes_back_with_a_proof_that_the_next_request_sends_again() -> None:
    item = {"type": "reasoning", "id": "rs1", "summary": [], "encrypted_content": "secret"}
    summary = told("response.reasoning_summary_text.delta", item_id="rs1", output_index=0, summary_index=0, delta="Hm.")
    done = told("response.output_item.done", output_index=0, item=item)
    thinking, said = message(responses(CREATED, summary, done, text("42", 1), COMPLETED)).content
    assert (thinking["thinking"], said) == ("Hm.", {"type": "text", "text": "42"})
    assert reasoning_item(thinking) == {
        "type": "reasoning", "id": "rs1", "encrypted_content": "secret", "summary": [{"type": "summary_text", "text": "Hm."}],
    }  # fmt: skip


def test_a_proof_of_another_api_is_not_sent() -> None:
    for signature in ("", "EqQBCkYI", json.dumps({"id": 1}), "[]"):
        assert reasoning_item({"type": "thinking", "thinking": "x", "signature": signature}) is None


def test_parallel_calls() -> None:
    answer = message(
        responses(CREATED, call(0, "read"), arguments(0, '{"path": '), call(1, "list"), arguments(0, '"a"}'), COMPLETED)
    )
    assert answer.content == [
        {"type": "tool_use", "id": "c0", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "c1", "name": "list", "input": {}},
    ]
    assert answer.stop_reason == "tool_use"


@pytest.mark.parametrize(("why", "reason"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal")])
def test_an_answer_that_is_cut_by_its_api_says_why(why: str, reason: str) -> None:
    incomplete = told("response.incomplete", response=response(incomplete_details={"reason": why}))
    assert message(responses(CREATED, text("x"), incomplete)).stop_reason == reason


def test_a_refusal_is_the_text_of_a_refused_answer() -> None:
    refusal = told("response.refusal.delta", item_id="i", output_index=0, content_index=0, delta="No.")
    answer = message(responses(CREATED, refusal, COMPLETED))
    assert (answer.content, answer.stop_reason) == ([{"type": "text", "text": "No."}], "refusal")


def test_failures_and_cuts() -> None:
    failed = told("response.failed", response=response(error={"code": "server_error", "message": "it broke"}))
    error = told("error", code="rate_limit_exceeded", message="slow down", param=None)
    for event, word in ((failed, "server_error"), (error, "rate_limit_exceeded")):
        with pytest.raises(StreamError) as caught:
            ResponsesStream("m").take(event)
        assert caught.value.code == word
    with pytest.raises(StreamError, match="was cut"):
        responses(CREATED, text("half"))
