"""API backends behind the gateway, before the loopback fakes of their APIs: tools that end the turn, sampling, images, models."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from gateway_kit import CHAT, GatewayProcess
from harness import until

from tests.e2e.api.lab import API_KINDS, ApiLab, call, fail, say, stalled
from tests.e2e.lab import running
from tests.e2e.scenarios import Respond, in_turn

Start = Callable[..., tuple[ApiLab, GatewayProcess]]
TOOL: Any = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=API_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab() -> Iterator[Start]:
    """Starts a fake, a daemon and a gateway: `lab(kind, respond)`."""
    with ExitStack() as stack:

        def start(kind: str, respond: Respond, **table: Any) -> tuple[ApiLab, GatewayProcess]:
            here = stack.enter_context(running(ApiLab(kind, respond)))
            served = GatewayProcess(here.root, here.socket, backends=[kind], **table)
            stack.callback(served.end)
            served.start()
            return here, served

        yield start


def said(here: ApiLab, number: int = 0) -> str:
    """All of a request of the worker, as JSON."""
    return json.dumps(here.api.main_requests[number].body)


def test_an_answer_and_its_usage_are_the_providers(lab: Start, kind: str) -> None:
    here, served = lab(kind, say(kind, "Aye", "."))
    messages: Any = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hello."}]
    answer = served.openai().chat.completions.create(model=f"{kind}/other-1", messages=messages, max_tokens=77)
    assert answer.choices[0].message.content == "Aye." and answer.usage and answer.usage.completion_tokens > 0
    body = here.api.main_requests[0].body
    assert body["model"] == "other-1" and "pirate" in said(here) and "77" in said(here) and "tools" not in body


def test_a_call_ends_the_turn_and_the_results_begin_another_without_a_session_between(lab: Start, kind: str) -> None:
    here, served = lab(kind, in_turn(call(kind, ("add", {"a": 2}), ("add", {"a": 3})), say(kind, "Five.")))
    client, messages = served.openai(), [{"role": "user", "content": "What is it?"}]
    ask: Any = {"model": kind, "tools": [TOOL]}
    first = client.chat.completions.create(messages=messages, **ask).choices[0]  # type: ignore[arg-type]
    assert first.finish_reason == "tool_calls" and first.message.tool_calls
    messages.append(first.message.to_dict())  # type: ignore[arg-type]
    messages += [
        {"role": "tool", "tool_call_id": use.id, "content": f"result of {use.id}"} for use in first.message.tool_calls
    ]
    served.kill()
    served.start()
    ended = served.openai().chat.completions.create(messages=messages, **ask).choices[0]  # type: ignore[arg-type]
    assert ended.message.content == "Five." and all(
        f"result of {use.id}" in said(here, 1) for use in first.message.tool_calls
    )


def test_a_conversation_goes_on_by_the_id_of_its_answer(lab: Start, kind: str) -> None:
    here, served = lab(kind, in_turn(call(kind, ("add", {"a": 2})), say(kind, "Two."), say(kind, "Bye.")))
    client = served.openai()
    tool: Any = {
        "type": "function",
        "name": "add",
        "description": "",
        "parameters": {"type": "object"},
        "strict": False,
    }
    first = client.responses.create(model=kind, input="The word is plum.", tools=[tool])
    use = next(item for item in first.output if item.type == "function_call")
    output: Any = [{"type": "function_call_output", "call_id": use.call_id, "output": "2"}]
    second = client.responses.create(model=kind, input=output, tools=[tool], previous_response_id=first.id)
    third = client.responses.create(model=kind, input="And now?", previous_response_id=second.id)
    assert (second.output_text, third.output_text) == ("Two.", "Bye.") and "plum" in said(here, 2)


def test_a_repeated_post_asks_the_provider_once_although_the_daemon_was_killed(lab: Start, kind: str) -> None:
    gate: dict[str, Any] = {}

    def respond(body: Any, n: int) -> Any:
        gate["api"].release.wait(60)
        return say(kind, "The whole answer.")(body, n)

    here, served = lab(kind, respond)
    gate["api"] = here.api
    found: list[Any] = []
    body = served.chat("Hello.", model=kind)
    thread = threading.Thread(target=lambda: found.append(served.send("POST", CHAT, body, Idempotency_Key="once")))
    thread.start()
    until(lambda: here.api.main_requests)
    here.kill()
    here.api.release.set()
    here.start()
    thread.join(120)
    again = served.send("POST", CHAT, body, Idempotency_Key="once")
    assert again[1]["choices"][0]["message"]["content"] == "The whole answer." and found[0][1] == again[1]
    assert len(here.api.main_requests) == 1


def test_a_client_that_leaves_ends_the_turn(lab: Start, kind: str) -> None:
    here, served = lab(kind, stalled(kind, "Half"))
    stream = served.openai().chat.completions.create(
        model=kind, messages=[{"role": "user", "content": "Hello."}], stream=True
    )
    assert next(chunk for chunk in stream if chunk.choices[0].delta.content)
    with here.client() as client:
        assert len(client.call("session/list")["sessions"]) == 1
        stream.close()
        until(lambda: not client.call("session/list")["sessions"])


def test_a_limit_of_the_provider_is_429_with_its_time(lab: Start, kind: str) -> None:
    _, served = lab(kind, fail(kind, 429, "rate_limit_error", "Slow down.", {"retry-after": "300"}))
    status, _, headers = served.send("POST", CHAT, served.chat("Hello.", model=kind))
    assert status == 429 and 200 < int(headers["retry-after"]) <= 310


def test_images_and_schemas_reach_the_provider(lab: Start, kind: str) -> None:
    here, served = lab(kind, say(kind, '{"a": 1}'))
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "text", "text": "What?"},
    ]
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    format_ = {"type": "json_schema", "json_schema": {"name": "A", "schema": schema}}
    body = {"model": kind, "messages": [{"role": "user", "content": content}], "response_format": format_}
    answer = served.send("POST", CHAT, body)
    assert PNG in said(here) and '"integer"' in said(here)
    assert answer[0] == 200 and json.loads(answer[1]["choices"][0]["message"]["content"]) == {"a": 1}
