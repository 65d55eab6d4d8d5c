"""History and tools in claude's form, as the two OpenAI APIs take them: each request is one by the SDK's own types."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

from clisup.worker.apis.requests import chat_messages, chat_tools, responses_input, responses_tools

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
PROOF = '{"id":"rs1","encrypted_content":"secret"}'
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": PROOF},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "ä"}},
        {"type": "tool_use", "id": "c2", "name": "list", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a page"}, IMAGE]},
        {"type": "tool_result", "tool_use_id": "c2", "content": "it broke", "is_error": True},
        {"type": "text", "text": "Go on."},
    ]},
]  # fmt: skip
TOOLS = [{"name": "read", "description": "Read.", "input_schema": {"type": "object", "properties": {}}}]
URL = "data:image/png;base64,iVBO"


def test_a_history_for_chat_completions_has_the_results_right_behind_their_calls() -> None:
    sent = chat_messages(HISTORY, "Be brief.")
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(sent)
    assert sent == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "ä"}'}},
            {"id": "c2", "type": "function", "function": {"name": "list", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "a page"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: it broke"},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}, {"type": "image_url", "image_url": {"url": URL}}]},
    ]  # fmt: skip


def test_a_history_for_responses_keeps_the_order_and_the_thinking() -> None:
    sent = responses_input(HISTORY)
    TypeAdapter(list[ResponseInputItemParam]).validate_python(sent)
    assert [item["type"] for item in sent] == [
        "message", "reasoning", "message", "function_call", "function_call", "function_call_output", "message",
        "function_call_output", "message",
    ]  # fmt: skip
    assert sent[1]["encrypted_content"] == "secret"
    assert sent[6]["content"] == [{"type": "input_image", "image_url": URL, "detail": "auto"}]
    assert sent[7]["output"] == "Error: it broke"


def test_texts_of_several_messages_are_paragraphs_of_one_for_chat_completions() -> None:
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert chat_messages([{"role": "user", "content": blocks}], None) == [{"role": "user", "content": "One.\n\nTwo."}]


def test_an_answer_without_words_is_not_sent_to_chat_completions() -> None:
    assert chat_messages([{"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}], None) == []


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_goes_back_to_chat_completions_in_the_field_that_it_came_in(field: str) -> None:
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": field}, {"type": "text", "text": "42"}]
    sent = chat_messages([{"role": "assistant", "content": blocks}], None)
    assert sent == [{"role": "assistant", "content": "42", field: "Hm."}]


def test_tools() -> None:
    TypeAdapter(list[ChatCompletionToolParam]).validate_python(chat_tools(TOOLS))
    TypeAdapter(list[FunctionToolParam]).validate_python(responses_tools(TOOLS))
    assert chat_tools(TOOLS)[0]["function"]["parameters"] == TOOLS[0]["input_schema"]
