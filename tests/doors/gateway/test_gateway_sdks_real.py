"""The official SDKs before the gateway: answers, streams, tools, images, schemas, conversations and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from anthropic import APIStatusError, RateLimitError
from gateway_kit import CHAT, MESSAGES, Served
from harness import until

Start = Callable[..., Served]
ADD: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": ADD}}
RESPONSES_TOOL: Any = {"type": "function", "name": "add", "description": "Adds.", "parameters": ADD, "strict": False}
MESSAGES_TOOL: Any = {"name": "add", "description": "Adds.", "input_schema": ADD}
CALL = 'Let me add.\n@mcp add {"a": 1}\nThat was all.'
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PLUM: Any = [
    {"role": "user", "content": "The word is plum."},
    {"role": "assistant", "content": "Noted."},
    {"role": "user", "content": "@history"},
]


def test_chat_completions_answer_and_stream_with_usage(gateway: Start) -> None:
    client = gateway().openai()
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    answer = client.chat.completions.create(model="demo", messages=messages)
    assert answer.choices[0].message.content == "You said: Hello." and answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens > 0
    messages = [{"role": "user", "content": "@stream 3"}]
    chunks = list(
        client.chat.completions.create(
            model="demo", messages=messages, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "chunk 000000\nchunk 000001\nchunk 000002\n"
    assert chunks[-1].usage is not None and chunks[-1].choices == []
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


def test_messages_answer_and_stream_with_usage(gateway: Start) -> None:
    client = gateway().anthropic()
    ask: Any = {"model": "demo", "max_tokens": 100, "system": "Be brief."}
    answer = client.messages.create(messages=[{"role": "user", "content": "Hello."}], **ask)
    assert [block.to_dict()["text"] for block in answer.content] == ["You said: Hello."]
    assert answer.stop_reason == "end_turn" and answer.usage.output_tokens > 0
    with client.messages.stream(messages=[{"role": "user", "content": "@stream 3"}], **ask) as stream:
        assert list(stream.text_stream) == ["chunk 000000\n", "chunk 000001\n", "chunk 000002\n"]
        whole = stream.get_final_message()
    assert whole.stop_reason == "end_turn" and whole.usage.output_tokens > 0


def test_responses_answer_stream_and_go_on_from_any_answer(gateway: Start) -> None:
    client = gateway().openai()
    first = client.responses.create(model="demo", input="The word is plum.")
    assert first.output_text == "You said: The word is plum." and first.status == "completed" and first.usage
    second = client.responses.create(model="demo", input="@count", previous_response_id=first.id)
    third = client.responses.create(model="demo", input="@count", previous_response_id=second.id)
    assert (second.output_text, third.output_text) == ("turn 2", "turn 3")
    branch = client.responses.create(model="demo", input="@recall", previous_response_id=first.id)
    assert "plum" in branch.output_text and branch.id.split("-")[0] != third.id.split("-")[0]
    with client.responses.stream(model="demo", input="@stream 3") as stream:
        types = [event.type for event in stream]
        assert stream.get_final_response().output_text == "chunk 000000\nchunk 000001\nchunk 000002\n"
    assert types[0] == "response.created" and types[-1] == "response.completed"


def test_an_answer_that_was_not_stored_is_not_found(gateway: Start) -> None:
    client = gateway().openai()
    first = client.responses.create(model="demo", input="Hello.", store=False)
    for id_ in (first.id, "resp_" + "0" * 32 + "-t1-0", "resp_1"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.create(model="demo", input="And?", previous_response_id=id_)
        assert caught.value.code == "previous_response_not_found"


def test_the_conversation_before_the_prompt_becomes_the_sessions_history(gateway: Start) -> None:
    served = gateway()
    chat = served.openai().chat.completions.create(model="demo", messages=PLUM)
    claude = served.anthropic().messages.create(model="demo", max_tokens=9, messages=PLUM)
    responses = served.openai().responses.create(model="demo", input=PLUM)
    texts = [chat.choices[0].message.content, claude.content[0].to_dict()["text"], responses.output_text]
    assert all(text == texts[0] and "plum" in text and "Noted." in text for text in texts)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_calls_a_tool_of_the_program_and_goes_on_with_its_result(gateway: Start, stream: bool) -> None:
    client = gateway().openai()
    messages: list[Any] = [{"role": "user", "content": CALL}]
    with client.chat.completions.stream(model="demo", messages=messages, tools=[CHAT_TOOL]) as events:
        for _ in events:
            pass
        said = events.get_final_completion().choices[0] if stream else None
    if said is None:
        said = client.chat.completions.create(model="demo", messages=messages, tools=[CHAT_TOOL]).choices[0]
    assert said.finish_reason == "tool_calls" and said.message.content == "Let me add."
    (call,) = said.message.tool_calls or ()
    assert call.type == "function" and json.loads(call.function.arguments) == {"a": 1} and len(call.id) <= 40
    assert call.function.name == "add"
    messages += [said.message.to_dict(), {"role": "tool", "tool_call_id": call.id, "content": "1"}]
    ended = client.chat.completions.create(model="demo", messages=messages, tools=[CHAT_TOOL])
    assert ended.choices[0].message.content == "That was all." and ended.choices[0].finish_reason == "stop"


def test_messages_call_tools_in_parallel_and_take_all_results_together(gateway: Start) -> None:
    served = gateway()
    client = served.anthropic()
    prompt = '@parallel\n@mcp add {"a": 1}\n@mcp add {"a": 2}\n@end\nDone.'
    messages: list[Any] = [{"role": "user", "content": prompt}]
    ask: Any = {"model": "demo", "max_tokens": 99, "tools": [MESSAGES_TOOL]}
    with client.messages.stream(messages=messages, **ask) as stream:
        said = stream.get_final_message()
    uses = [block for block in said.content if block.type == "tool_use"]
    assert said.stop_reason == "tool_use" and [use.input for use in uses] == [{"a": 1}, {"a": 2}]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": f"got {use.input}"} for use in uses]
    half = [
        *messages,
        {"role": "assistant", "content": said.to_dict()["content"]},
        {"role": "user", "content": results[:1]},
    ]
    with pytest.raises(APIStatusError) as caught:
        client.messages.create(messages=half, **ask)
    assert caught.value.status_code == 400
    half[-1] = {"role": "user", "content": results}
    ended = client.messages.create(messages=half, **ask)
    assert ended.content[0].to_dict()["text"] == "Done." and ended.stop_reason == "end_turn"


def test_responses_take_the_output_of_a_function_with_and_without_the_conversation(gateway: Start) -> None:
    client = gateway().openai()
    for by_id in (True, False):
        first = client.responses.create(model="demo", input=CALL, tools=[RESPONSES_TOOL])
        call = next(item for item in first.output if item.type == "function_call")
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "1"}
        sent: Any = [output] if by_id else [{"role": "user", "content": CALL}, *first.to_dict()["output"], output]  # type: ignore[misc]
        more: Any = {"previous_response_id": first.id} if by_id else {}
        ended = client.responses.create(model="demo", input=sent, tools=[RESPONSES_TOOL], **more)
        assert ended.output_text == "That was all."


def test_results_of_a_turn_that_is_gone_are_told_to_a_new_one(gateway: Start) -> None:
    served = gateway()
    client = served.openai()
    messages: list[Any] = [{"role": "user", "content": CALL}]
    first = client.chat.completions.with_raw_response.create(model="demo", messages=messages, tools=[CHAT_TOOL])
    said = first.parse().choices[0].message
    assert said.tool_calls
    session = first.headers["x-clisup-session"]
    served.daemon.call("session/close", session_id=session)
    served.daemon.call("session/delete", session_id=session)
    messages += [said.to_dict(), {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "1"}]
    ended = client.chat.completions.create(model="demo", messages=messages, tools=[CHAT_TOOL])
    assert "the conversation so far" in (ended.choices[0].message.content or "")


def test_an_answer_follows_a_schema_in_each_dialect(gateway: Start) -> None:
    served = gateway()
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    prompt = '@structured {"a": 2}'
    client: Any = served.openai()
    format_: Any = {"type": "json_schema", "json_schema": {"name": "A", "schema": schema}}
    messages: Any = [{"role": "user", "content": prompt}]
    chat = client.chat.completions.create(model="demo", messages=messages, response_format=format_)
    stream = client.chat.completions.create(model="demo", messages=messages, response_format=format_, stream=True)
    responses = client.responses.create(
        model="demo", input=prompt, text={"format": {"type": "json_schema", "name": "A", "schema": schema}}
    )
    claude: Any = served.anthropic().messages.create(
        model="demo",
        max_tokens=9,
        messages=messages,
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    texts = [chat.choices[0].message.content, streamed, responses.output_text, claude.content[0].text]
    assert [json.loads(text) for text in texts] == [{"a": 2}] * 4


def test_images_reach_the_prompt_and_addresses_of_images_are_refused(gateway: Start) -> None:
    served = gateway()
    url = f"data:image/png;base64,{PNG}"
    ask: Any = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}],
    }
    raw = served.openai().chat.completions.with_raw_response.create(
        model="demo", messages=[ask], extra_headers={"Idempotency-Key": "image"}
    )
    session = raw.headers["x-clisup-session"]
    page = served.daemon.call("session/events", session_id=session, types=["prompt_accepted"])
    assert page["events"][0]["images"] == 1
    ask["content"][0]["image_url"]["url"] = "http://127.0.0.1:1/a.png"
    with pytest.raises(openai.BadRequestError):
        served.openai().chat.completions.create(model="demo", messages=[ask])


def test_each_dialect_has_its_own_errors_and_a_limit_says_when_to_try_again(gateway: Start) -> None:
    served = gateway()
    client, claude = served.openai(), served.anthropic()
    ask: Any = {"model": "demo", "messages": [{"role": "user", "content": "@error rate_limit"}]}
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(**ask)
    assert limited.value.code == "rate_limit_exceeded" and int(limited.value.response.headers["retry-after"]) > 0
    with pytest.raises(RateLimitError):
        claude.messages.create(max_tokens=9, **ask)
    ask["messages"][0]["content"] = "@error context"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(**ask)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(APIStatusError) as too_long:
        claude.messages.create(max_tokens=9, **ask)
    assert too_long.value.body == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": long.value.body["message"]},
    }  # type: ignore[index]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(**{**ask, "model": "gpt-5"})


def test_a_failure_in_a_stream_is_an_error_of_the_stream(gateway: Start) -> None:
    served = gateway(before="import clisup.doors.gateway.endpoint as e; e.FIRST_S = 0.1")
    prompt = "Half an answer.\n@bash sleep 1\n@error overloaded"
    messages: Any = [{"role": "user", "content": prompt}]
    with pytest.raises(openai.APIError):
        for _ in served.openai().chat.completions.create(model="demo", messages=messages, stream=True):
            pass
    with (
        pytest.raises(APIStatusError),
        served.anthropic().messages.stream(model="demo", max_tokens=9, messages=messages) as stream,
    ):
        for _ in stream:
            pass
    events = list(served.openai().responses.create(model="demo", input=prompt, stream=True))
    assert events[-1].type == "response.failed" and events[-1].response.error is not None


def test_models_are_listed_and_found_by_both_sdks_and_other_names_serve_too(gateway: Start) -> None:
    served = gateway(models={"gpt-5": "demo/demo-2"})
    assert [model.id for model in served.openai().models.list()] == ["gpt-5", "demo"]
    assert [model.id for model in served.anthropic().models.list()] == ["gpt-5", "demo"]
    assert served.openai().models.retrieve("gpt-5").owned_by == "clisup"
    with pytest.raises(openai.NotFoundError):
        served.openai().models.retrieve("claude")
    answer = served.openai().chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "Hello."}])
    assert answer.model == "gpt-5" and answer.choices[0].message.content == "You said: Hello."


def test_a_named_session_goes_on_and_is_the_daemons_too(gateway: Start) -> None:
    served = gateway()
    said = [served.send("POST", CHAT, served.chat("@count"), x_clisup_session="talk") for _ in range(2)]
    assert [answer[1]["choices"][0]["message"]["content"] for answer in said] == ["turn 1", "turn 2"]
    session = said[0][2]["x-clisup-session"]
    body = {**served.chat("@count"), "max_tokens": 9}
    assert served.send("POST", MESSAGES, body, x_clisup_session=session)[1]["content"][0]["text"] == "turn 3"
    assert served.daemon.call("session/get", session_id=session)["turns"] == 3


def test_parameters_without_effect_are_named_and_impossible_ones_refused(gateway: Start) -> None:
    served = gateway()
    status, _, headers = served.send("POST", CHAT, served.chat("Hello.", temperature=0.5, seed=1, verbosity="low"))
    assert status == 200 and headers["x-clisup-ignored"] == "temperature, seed, verbosity"
    for more in ({"n": 2}, {"logprobs": True}, {"tool_choice": "required"}, {"functions": [{"name": "a"}]}):
        assert served.send("POST", CHAT, served.chat("Hello.", **more))[0] == 400


def test_a_session_without_a_key_is_gone_after_its_answer(gateway: Start) -> None:
    served = gateway()
    assert served.send("POST", CHAT, served.chat("Hello."))[0] == 200
    until(lambda: not any(served.daemon.call("session/list", state=state)["sessions"] for state in (None, "closed")))
