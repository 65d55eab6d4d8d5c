"""Requests of each dialect as one request, and what is refused: pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.doors.gateway.anthropic_messages.request import read_messages
from clisup.doors.gateway.failures import GatewayError
from clisup.doors.gateway.openai_chat.request import read_chat
from clisup.doors.gateway.openai_responses.request import read_responses
from clisup.doors.gateway.requests import AnswerRequest
from clisup.llm.messages import ImageBlock, Message, TextBlock, ToolResultBlock, ToolUseBlock

Read = Callable[[bytes, float], AnswerRequest]
PNG = "iVBORw0KGgo="
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}
CONVERSATION = (
    Message.user("Look."),
    Message(role="assistant", content=(TextBlock(text="So."), ToolUseBlock(id="c1", name="add", input={"a": 1}))),
    Message(role="user", content=(ToolResultBlock(tool_use_id="c1", content="2"),)),
    Message.assistant("Two."),
    Message(role="user", content=(TextBlock(text="And this?"), ImageBlock(media_type="image/png", data=PNG))),
)
URL = f"data:image/png;base64,{PNG}"
CHAT: dict[str, Any] = {
    "model": "demo",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "So.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": [{"type": "text", "text": "Two."}]},
        {"role": "user", "content": [{"type": "text", "text": "And this?"}, {"type": "image_url", "image_url": {"url": URL}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": SCHEMA}}],
    "max_completion_tokens": 9, "temperature": 0.5,
    "response_format": {"type": "json_schema", "json_schema": {"name": "A", "schema": SCHEMA}},
}  # fmt: skip
RESPONSES: dict[str, Any] = {
    "model": "demo", "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "message", "role": "assistant", "content": "Two."},
        {"role": "user", "content": [{"type": "input_text", "text": "And this?"}, {"type": "input_image", "image_url": URL}]},
    ],
    "tools": [{"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA}],
    "max_output_tokens": 9, "temperature": 0.5, "store": False,
    "text": {"format": {"type": "json_schema", "name": "A", "schema": SCHEMA}},
}  # fmt: skip
MESSAGES: dict[str, Any] = {
    "model": "demo", "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "So."}, {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "2"}]},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": [{"type": "text", "text": "And this?"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}]},
    ],
    "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
    "max_tokens": 9, "temperature": 0.5, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}  # fmt: skip
DIALECTS = [(read_chat, CHAT), (read_responses, RESPONSES), (read_messages, MESSAGES)]


def read(reader: Read, body: Any) -> AnswerRequest:
    return reader(json.dumps(body).encode(), 600.0)


def refusal(reader: Read, body: Any) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        read(reader, body)
    return caught.value


@pytest.mark.parametrize(("reader", "body"), DIALECTS)
def test_the_same_request_reads_alike_in_each_dialect(reader: Read, body: dict[str, Any]) -> None:
    found = read(reader, body)
    assert found.messages == CONVERSATION
    assert (found.system, found.schema) == ("Be brief.", SCHEMA)
    assert found.sampling == {"max_tokens": 9, "temperature": 0.5}
    assert [(tool.name, tool.description, tool.input_schema, tool.timeout_s) for tool in found.tools] == [
        ("add", "Adds.", SCHEMA, 600.0)
    ]
    assert not (found.stream or found.keep or found.ignored or found.previous)


@pytest.mark.parametrize(("reader", "body"), DIALECTS)
@pytest.mark.parametrize(
    "change",
    [
        {"model": None}, {"messages": [], "input": []}, {"temperature": -1}, {"tools": [{"name": "a b"}]},
        {"messages": [{"role": "assistant", "content": "Hi."}], "input": [{"role": "assistant", "content": "Hi."}]},
        {"messages": [{"role": "user", "content": " "}], "input": " "},
    ],
)  # fmt: skip
def test_a_wrong_request_is_refused_in_each_dialect(reader: Read, body: dict[str, Any], change: dict[str, Any]) -> None:
    failure = refusal(reader, {**body, **change}).failure
    assert failure.status == 400 and failure.retryable is False and failure.message


def test_a_mistake_names_its_place_and_not_its_value() -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": [{"type": "text", "text": {"secret": "plum"}}]}]}
    failure = refusal(read_chat, body).failure
    assert failure.param == "messages[0].content[0].text" and "plum" not in failure.message


@pytest.mark.parametrize(
    "url", ["http://x/a.png", "file:///etc/passwd", "data:text/plain;base64,YQ==", "data:image/tiff;base64,YQ=="]
)
def test_no_address_of_an_image_is_loaded(url: str) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    assert refusal(read_chat, body).failure.status == 400
    source = {"type": "url", "url": url}
    body = {**MESSAGES, "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert refusal(read_messages, body).failure.status == 400


@pytest.mark.parametrize(
    ("reader", "body", "more"),
    [
        (read_chat, CHAT, {"n": 2}), (read_chat, CHAT, {"logprobs": True}), (read_chat, CHAT, {"tool_choice": "whatever"}),
        (read_chat, CHAT, {"modalities": ["audio"]}), (read_responses, RESPONSES, {"background": True}),
        (read_responses, RESPONSES, {"tool_choice": {"type": "allowed_tools", "tools": []}}),
        (read_responses, RESPONSES, {"conversation": "conv_1"}), (read_messages, MESSAGES, {"tool_choice": {"type": "tool"}}),
        (read_messages, MESSAGES, {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}),
    ],
)  # fmt: skip
def test_what_no_backend_can_do_is_refused(reader: Read, body: dict[str, Any], more: dict[str, Any]) -> None:
    assert refusal(reader, {**body, **more}).failure.status == 400


FUNCTION = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
PAST = {
    "tool_reference": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                                     "content": [{"type": "tool_reference", "tool_name": "n"}]}]}],
    "server_tool_use": [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search"},
                                                          {"type": "text", "text": "b"}]}],
    "web_search_tool_result": [{"role": "assistant", "content": [{"type": "web_search_tool_result", "tool_use_id": "s",
                                                                  "content": []}, {"type": "text", "text": "b"}]}],
    "document": [{"role": "user", "content": [{"type": "document", "source": {}}, {"type": "text", "text": "b"}]},
                 {"role": "assistant", "content": "c"}],
}  # fmt: skip


@pytest.mark.parametrize("kind", PAST)
def test_a_block_of_the_past_that_no_backend_can_use_is_left_out_and_named(kind: str) -> None:
    messages = [{"role": "user", "content": "a"}, *PAST[kind], {"role": "user", "content": "Go on."}]
    found = read(read_messages, {**MESSAGES, "messages": messages})
    assert f"content.{kind}" in found.ignored and found.messages[-1].text == "Go on."


def test_a_long_name_of_a_tool_is_shortened_alike_everywhere_and_can_be_told_back() -> None:
    name, other = "mcp__" + "a" * 75, "mcp__" + "a" * 74 + "b"
    tools = [{"name": each, "input_schema": {"type": "object"}} for each in (name, other)]
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": name, "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "3"}]}
    messages = [{"role": "user", "content": "a"}, call, result]
    choice = {"type": "tool", "name": other}
    found = read(read_messages, {**MESSAGES, "tools": tools, "messages": messages, "tool_choice": choice})
    short = [tool.name for tool in found.tools]
    assert [len(each) for each in short] == [64, 64] and [found.names[each] for each in short] == [name, other]
    (use,) = (block for block in found.messages[1].content if isinstance(block, ToolUseBlock))
    assert (use.name, found.sampling["tool_choice"]) == (short[0], f"tool:{short[1]}")
    too_long = {**MESSAGES, "tools": [{"name": "a" * 129, "input_schema": {"type": "object"}}]}
    assert refusal(read_messages, too_long).failure.status == 400


def test_thinking_without_a_signature_is_left_out() -> None:
    said = {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "b"}]}
    messages = [{"role": "user", "content": "a"}, said, {"role": "user", "content": "Go on."}]
    found = read(read_messages, {**MESSAGES, "messages": messages})
    assert [type(block) for block in found.messages[1].content] == [TextBlock]


def test_tools_that_only_a_vendor_runs_are_left_out_and_named_and_functions_of_a_namespace_are_tools() -> None:
    tools = [FUNCTION, {"type": "custom", "name": "apply_patch", "format": {"type": "text"}}, {"type": "web_search"},
             {"type": "namespace", "name": "mcp", "tools": [{**FUNCTION, "name": "look"}]}]  # fmt: skip
    past = [{"type": "web_search_call", "id": "ws"}, {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": ""},
            {"type": "custom_tool_call_output", "call_id": "c", "output": ""}, {"role": "user", "content": "Hi."}]  # fmt: skip
    found = read(read_responses, {**RESPONSES, "tools": tools, "input": past})
    assert [tool.name for tool in found.tools] == ["shell", "look"]
    assert set(found.ignored) == {"tools.custom", "tools.web_search", "input.web_search_call", "input.custom_tool_call",
                                  "input.custom_tool_call_output"}  # fmt: skip
    bash = read(read_messages, {**MESSAGES, "tools": [{"type": "bash_20250124", "name": "bash"}]})
    assert (bash.tools, bash.ignored) == ((), ("tools.bash_20250124",))


@pytest.mark.parametrize(("reader", "body"), DIALECTS)
def test_a_parameter_that_nobody_here_knows_is_named(reader: Read, body: dict[str, Any]) -> None:
    more = {"guided_json": {"type": "object"}, "min_p": 0.1, "metadata": {"a": "b"}, "other": None, "a b": 1}
    assert read(reader, {**body, **more}).ignored == ("guided_json", "min_p")


def test_a_system_message_alone_is_the_prompt() -> None:
    found = read(read_chat, {**CHAT, "messages": [{"role": "system", "content": "Say hello."}]})
    assert (found.system, [message.text for message in found.messages]) == (None, ["Say hello."])


@pytest.mark.parametrize(
    ("reader", "body", "choice", "said"),
    [
        (read_chat, CHAT, "required", "any"), (read_chat, CHAT, {"type": "function", "function": {"name": "add"}}, "tool:add"),
        (read_responses, RESPONSES, "required", "any"), (read_responses, RESPONSES, {"type": "function", "name": "add"}, "tool:add"),
        (read_messages, MESSAGES, {"type": "any"}, "any"), (read_messages, MESSAGES, {"type": "tool", "name": "add"}, "tool:add"),
        (read_chat, CHAT, "auto", None), (read_messages, MESSAGES, {"type": "auto"}, None),
    ],
)  # fmt: skip
def test_the_choice_of_a_tool_is_a_param_of_the_answer(
    reader: Read, body: dict[str, Any], choice: Any, said: str | None
) -> None:
    assert read(reader, {**body, "tool_choice": choice}).sampling.get("tool_choice") == said
    if said is not None:
        assert refusal(reader, {**body, "tool_choice": choice, "tools": None}).failure.param == "tool_choice"


def test_calls_one_after_the_other_may_be_asked_for_in_each_dialect() -> None:
    alone = {"parallel_tool_calls": False}
    assert read(read_chat, CHAT | alone).sampling["parallel_tool_calls"] is False
    assert read(read_responses, RESPONSES | alone).sampling["parallel_tool_calls"] is False
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert read(read_messages, {**MESSAGES, "tool_choice": choice}).sampling["parallel_tool_calls"] is False


def test_tools_are_left_out_where_the_request_forbids_them() -> None:
    assert not read(read_chat, {**CHAT, "tool_choice": "none"}).tools
    assert not read(read_responses, {**RESPONSES, "tool_choice": "none"}).tools
    assert not read(read_messages, {**MESSAGES, "tool_choice": {"type": "none"}}).tools


def test_parameters_without_effect_are_named() -> None:
    assert read(read_chat, {**CHAT, "logit_bias": {}, "verbosity": "low"}).ignored == ("logit_bias", "verbosity")
    assert read(read_responses, {**RESPONSES, "reasoning": {}, "truncation": "auto"}).ignored == (
        "reasoning",
        "truncation",
    )
    assert read(read_messages, {**MESSAGES, "top_k": 3, "thinking": {"type": "adaptive"}}).ignored == (
        "thinking",
        "top_k",
    )


def test_outputs_after_an_earlier_answer_become_one_message() -> None:
    outputs = [{"type": "function_call_output", "call_id": f"c{n}", "output": str(n)} for n in (1, 2)]
    found = read(read_responses, {"model": "demo", "input": outputs, "previous_response_id": "resp_1"})
    (message,) = found.messages
    assert [block.type for block in message.content] == ["tool_result", "tool_result"] and found.previous == "resp_1"
    assert found.keep


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(number=st.integers(0, 2), key=st.integers(0, 20), value=JSON)
def test_any_value_at_any_key_is_read_or_refused(number: int, key: int, value: Any) -> None:
    reader, body = DIALECTS[number]
    spoilt = {**body, list(body)[key % len(body)]: value}
    try:
        reader(json.dumps(spoilt).encode(), 600.0)
    except GatewayError as error:
        assert error.failure.status == 400


@given(number=st.integers(0, 2), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_byte_in_a_body_is_read_or_refused(number: int, at: int, byte: int) -> None:
    reader, body = DIALECTS[number]
    data = bytearray(json.dumps(body).encode())
    data[at % len(data)] = byte
    try:
        reader(bytes(data), 600.0)
    except GatewayError as error:
        assert error.failure.status == 400
