"""The fake itself, without the CLI: what it streams is well-formed, and it can stall, cut and be closed."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.e2e.fake_messages_api import FakeMessagesAPI
from tests.e2e.scenarios import SCENARIOS, prompts, usage_of

TOOLS = [{"name": "Bash"}]


def main_body(*, stream: bool = True, prompt: str = "hello") -> dict[str, Any]:
    messages = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    return {"model": "m", "max_tokens": 100, "stream": stream, "tools": TOOLS, "messages": messages}


def post(api: FakeMessagesAPI, body: dict[str, Any], path: str = "/v1/messages?beta=true") -> http.client.HTTPResponse:
    request = urllib.request.Request(api.url + path, json.dumps(body).encode(), {"x-api-key": "k"})
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=20)
    return response


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """Parse an event stream, and check that each event's name is the type of its data."""
    parsed = []
    for part in raw.decode("ascii").strip().split("\n\n"):
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        parsed.append(event)
    return parsed


def test_a_text_answer_is_a_whole_stream_with_its_own_usage() -> None:
    with FakeMessagesAPI("text") as api:
        events = events_of(post(api, main_body()).read())
    types = [event["type"] for event in events]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    spoken = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert "\ud83d\ude00" in spoken
    assert events[-2]["usage"] == usage_of(0)


def test_without_stream_the_same_reply_is_one_message() -> None:
    with FakeMessagesAPI("tool_ok") as api:
        message = json.loads(post(api, main_body(stream=False)).read())
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]
    assert message["content"][1]["input"]["command"] == "echo hi"
    assert message["stop_reason"] == "tool_use"


def test_what_was_asked_is_recorded_and_side_requests_are_told_apart() -> None:
    with FakeMessagesAPI("memory") as api:
        side = main_body(stream=False) | {"tools": []}
        assert json.loads(post(api, side).read())["content"][0]["text"] == "ok"
        assert json.loads(post(api, main_body(), "/v1/messages/count_tokens").read()) == {"input_tokens": 4321}
        assert b"My number" in post(api, main_body(prompt="My number is 7.")).read()
        assert [request.main for request in api.requests] == [False, False, True]
        assert prompts(api.main_requests[0].body) == ["My number is 7."]
        assert api.main_requests[0].headers["x-api-key"] == "k"


def test_an_error_has_its_status_headers_and_body() -> None:
    with FakeMessagesAPI("http_429_long") as api, pytest.raises(urllib.error.HTTPError) as caught:
        post(api, main_body())
    with caught.value as answer:
        assert (answer.code, answer.headers["retry-after"]) == (429, "3600")
        assert json.loads(answer.read())["error"]["type"] == "rate_limit_error"


def test_a_cut_connection_is_seen_as_one_and_not_as_an_end() -> None:
    with FakeMessagesAPI("cut_mid_stream") as api:
        response = post(api, main_body())
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        response.close()


@pytest.mark.parametrize("scenario", ["stall_before_headers", "stall_mid_stream"])
def test_closing_the_fake_ends_a_stall(scenario: str) -> None:
    outcome: list[BaseException | None] = []

    def client() -> None:
        try:
            with post(api, main_body()) as response:
                response.read()
            outcome.append(None)
        except (OSError, http.client.HTTPException) as cause:
            outcome.append(cause)

    with FakeMessagesAPI(scenario) as api:
        thread = threading.Thread(target=client)
        thread.start()
        _until(lambda: bool(api.main_requests))
        assert thread.is_alive()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(outcome[0], OSError | http.client.HTTPException)


def test_every_scenario_answers_each_of_its_first_requests() -> None:
    for scenario in SCENARIOS.values():
        for n in range(3):
            steps = scenario.respond(main_body(), n)
            assert steps, scenario.name
            assert steps == scenario.respond(main_body(), n), "a reply must depend on nothing but its arguments"


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
