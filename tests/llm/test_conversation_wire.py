"""Messages as the JSON of an API's request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conversation_samples import MESSAGES, call, result, step, turn, turns
from hypothesis import given, settings

from clisup.errors import UsageError
from clisup.llm.conversation.context import to_wire_messages
from clisup.llm.conversation.nodes import Turn
from clisup.llm.messages import ImageBlock, Message, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock

QUICK = settings(max_examples=60)
PNG = ImageBlock(media_type="image/png", data="AAAA")


def marks(wire: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for message in wire for part in message["content"] if "cache_control" in part]


@QUICK
@given(MESSAGES)
def test_anthropics_messages_alternate_and_hold_no_orphan(messages: list[Message]) -> None:
    wire = to_wire_messages(messages, "anthropic")
    json.dumps(wire)
    assert [m["role"] for m in wire] == [("user", "assistant")[n % 2] for n in range(len(wire))]
    for place, message in enumerate(wire):
        uses = [part["id"] for part in message["content"] if part["type"] == "tool_use"]
        after = wire[place + 1]["content"] if place + 1 < len(wire) else []
        if message["role"] == "assistant":
            assert uses == [part["tool_use_id"] for part in after if part["type"] == "tool_result"]
        assert message["content"]
        assert all(part["signature"] for part in message["content"] if part["type"] == "thinking")
    assert len(marks(wire)) <= 4


@QUICK
@given(MESSAGES)
def test_openais_messages_answer_each_call_before_anything_else_is_said(messages: list[Message]) -> None:
    wire = to_wire_messages(messages, "openai")
    json.dumps(wire)
    open_: list[str] = []
    for message in wire:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_.pop(0)
            assert message["content"]
            continue
        assert not open_
        open_ = [item["id"] for item in message.get("tool_calls", ())]
        assert message["content"] or open_
    assert not open_


@QUICK
@given(turns())
def test_no_api_gets_a_cache_marker_that_is_not_its_own(made: tuple[Turn, ...]) -> None:
    assert "cache" not in str(to_wire_messages(made, "openai"))
    assert len(marks(to_wire_messages(made, "anthropic"))) <= 4


def test_every_kind_of_block_in_anthropics_form() -> None:
    wire = to_wire_messages(
        [
            Message.user([TextBlock(text="Look.", cache=True), PNG]),
            Message.assistant(
                [ThinkingBlock(text="Hm.", signature="sig"), ToolUseBlock(id="a", name="read", input={"p": 1})]
            ),
            Message.user([ToolResultBlock(tool_use_id="a", content=(TextBlock(text="no"), PNG), is_error=True)]),
            Message.assistant([ThinkingBlock(text="unsigned"), TextBlock(text="Well.")]),
        ],
        "anthropic",
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    assert wire == [
        {"role": "user", "content": [{"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "tool_use", "id": "a", "name": "read", "input": {"p": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "no"}, image],
                    "is_error": True,
                }
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Well."}]},
    ]


def test_every_kind_of_block_in_openais_form() -> None:
    wire = to_wire_messages(
        [
            Message.user([TextBlock(text="Look.", cache=True), PNG]),
            Message.assistant([TextBlock(text="I do."), ToolUseBlock(id="a", name="read", input={"p": "\u00e9"})]),
            Message.user([ToolResultBlock(tool_use_id="a", content=(TextBlock(text="no"), PNG), is_error=True)]),
            Message.assistant([ThinkingBlock(text="x", signature="y"), TextBlock(text="Well.")]),
        ],
        "openai",
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    function = {"name": "read", "arguments": '{"p": "\u00e9"}'}
    assert wire == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image]},
        {
            "role": "assistant",
            "content": "I do.",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Error: no"},
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": "Well."},
    ]


def test_only_as_many_markers_as_the_api_takes_are_set_and_the_last_ones_win() -> None:
    made = [turn(n, step(f"Answer {n}."), cache=True) for n in range(6)]
    assert [part["text"] for part in marks(to_wire_messages(made, "anthropic"))] == [
        f"Answer {n}." for n in range(2, 6)
    ]
    assert [part["text"] for part in marks(to_wire_messages(made, "anthropic", markers=1))] == ["Answer 5."]
    assert marks(to_wire_messages(made, "anthropic", markers=0)) == []


def test_turns_are_sent_by_their_marks() -> None:
    made = [turn(1, step(call("a").model_copy(update={"include_in_context": False})), step("Done."))]
    assert to_wire_messages(made, "openai") == [
        {"role": "user", "content": "Prompt 1."},
        {"role": "assistant", "content": "Done."},
    ]


def test_an_empty_result_is_not_an_empty_message() -> None:
    messages = [
        Message.user("Go."),
        Message.assistant([ToolUseBlock(id="a", name="x", input={})]),
        Message.user([result("a", "")]),
    ]
    assert to_wire_messages(messages, "openai")[2]["content"] == "(no text)"


def test_another_format_is_refused() -> None:
    with pytest.raises(UsageError, match="there are anthropic and openai"):
        to_wire_messages([Message.user("Hi")], "gemini")  # type: ignore[arg-type]
