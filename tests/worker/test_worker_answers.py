"""Answers of the real worker over fakes of the three APIs: text, thinking, images, caching, usage and cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clisup.model.events import (
    AssistantMessage,
    BackendStatus,
    ContentDelta,
    MessageStart,
    MessageStop,
    SessionInit,
    Unparsed,
)
from tests.worker.driver import KEY, worker
from tests.worker.fake_api import APIS, FakeApi, answer, call, refuse, say, think

each_api = pytest.mark.parametrize("api", APIS)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@each_api
def test_text_streams_in_the_pieces_of_the_api(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("Hel", "lo", "."))) as fake, worker(fake, tmp_path) as process:
        terminal = process.ask("Hi.")
        assert process.ended() == 0
    assert (terminal.is_error, terminal.text, terminal.stop_reason) == (False, "Hello.", "end_turn")
    assert [delta.text for delta in process.events(ContentDelta)] == ["Hel", "lo", "."]
    assert [block.text for message in process.events(AssistantMessage) for block in message.blocks] == ["Hello."]
    assert not process.events(Unparsed)
    assert [status.status for status in process.events(BackendStatus)] == ["requesting"]
    [init] = process.events(SessionInit)
    assert (init.native_session_id, init.model) == (process.session, "fake-model")
    assert process.events(MessageStart)[0].model == "fake-model"
    assert process.events(MessageStop)[0].usage.output_tokens == 40
    assert process.stderr == b""
    [request] = fake.main_requests
    assert KEY in (request.headers.get("x-api-key") or request.headers["authorization"])
    assert request.headers["accept-encoding"] == "identity", "a packed answer has no bound"


@each_api
def test_thinking_goes_back_with_the_next_request(api: str, tmp_path: Path) -> None:
    replies = (answer(think("Hm", "."), say("42")), answer(say("Still 42.")))
    with FakeApi(api, *replies) as fake, worker(fake, tmp_path, "--thinking", "adaptive") as process:
        process.say("First.")
        process.result()
        process.say("Second.")
        assert process.end() == 0
    thoughts = [b for m in process.events(AssistantMessage) for b in m.blocks if b.kind == "thinking"]
    assert [block.text for block in thoughts] == ["Hm."]
    assert thoughts[0].signature
    again = fake.bodies[1]
    if api == "anthropic":
        assert again["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
        assert again["thinking"] == {"type": "adaptive"}
    elif api == "chat":
        assert again["messages"][1] == {"role": "assistant", "content": "42", "reasoning_content": "Hm."}
    else:
        [item] = [item for item in again["input"] if item["type"] == "reasoning"]
        assert item["encrypted_content"] == "c2ln"
        assert again["include"] == ["reasoning.encrypted_content"]


def test_thinking_of_another_api_is_not_sent_to_anthropic(tmp_path: Path) -> None:
    with FakeApi("chat", answer(think("Hm."), say("42"))) as fake, worker(fake, tmp_path) as first:
        first.ask()
    with FakeApi("anthropic", answer(say("Hi."))) as fake, worker(fake, tmp_path, resume=first.session) as second:
        assert not second.ask("Again.").is_error
    assert fake.bodies[0]["messages"][1]["content"] == [{"type": "text", "text": "42"}]


@each_api
def test_images_of_a_prompt_reach_the_model(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("A cat."))) as fake, worker(fake, tmp_path) as process:
        process.ask([{"type": "text", "text": "What is it?"}, IMAGE])
    sent = json.dumps(fake.bodies[0])
    assert "iVBO" in sent and "What is it?" in sent
    assert ("data:image/png;base64,iVBO" in sent) == (api != "anthropic")


@each_api
def test_cache_marks_reach_anthropic_alone_and_no_more_than_it_takes(api: str, tmp_path: Path) -> None:
    marked = [{"type": "text", "text": f"Part {n}.", "cache_control": {"type": "ephemeral"}} for n in range(5)]
    with FakeApi(api, answer(say("Ok."))) as fake, worker(fake, tmp_path) as process:
        process.ask(marked)
    body = fake.bodies[0]
    if api == "anthropic":
        kept = [block["text"] for block in body["messages"][0]["content"] if "cache_control" in block]
        assert kept == ["Part 2.", "Part 3.", "Part 4."]
        assert body["cache_control"] == {"type": "ephemeral"}
    else:
        assert "cache_control" not in json.dumps(body)


@each_api
def test_the_system_prompt_and_the_sampling_are_sent_in_the_words_of_each_api(api: str, tmp_path: Path) -> None:
    (tmp_path / "system").write_text("Be brief.")
    sampling = {"temperature": 0.5, "top_p": 0.9, "stop": ["END"], "seed": 7}
    args = ("--system-prompt-file", str(tmp_path / "system"), "--max-tokens", "99", "--effort", "low")
    with FakeApi(api, answer(say("Ok."))) as fake, worker(fake, tmp_path, *args) as process:
        process.say(asked={"sampling": sampling})
        process.result()
        process.say(asked={"sampling": {"max_tokens": 5}})
        process.end()
    first, second = fake.bodies
    assert (first["temperature"], first["top_p"]) == (0.5, 0.9)
    if api == "anthropic":
        assert (first["system"], first["max_tokens"], first["stop_sequences"]) == ("Be brief.", 99, ["END"])
        assert (second["max_tokens"], first["output_config"]) == (5, {"effort": "low"})
    elif api == "chat":
        assert first["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (first["max_tokens"], first["stop"], first["seed"], second["max_tokens"]) == (99, ["END"], 7, 5)
        assert first["reasoning_effort"] == "low"
    else:
        assert (first["instructions"], first["max_output_tokens"], second["max_output_tokens"]) == ("Be brief.", 99, 5)
        assert "stop" not in first and "seed" not in first and first["store"] is False
        assert first["reasoning"]["effort"] == "low"


@each_api
def test_a_schema_is_asked_for_in_the_field_of_each_api(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say('{"n": 3}'))) as fake, worker(fake, tmp_path) as process:
        terminal = process.ask(asked={"schema": SCHEMA})
    assert (terminal.structured, terminal.text) == ({"n": 3}, '{"n": 3}')
    field: Any = {"anthropic": "output_config", "chat": "response_format", "responses": "text"}[api]
    assert fake.bodies[0][field]
    assert "tools" not in fake.bodies[0]


@each_api
def test_a_tool_takes_the_answer_where_the_api_has_no_field_for_schemas(api: str, tmp_path: Path) -> None:
    count = answer(call("StructuredOutput", n=3))
    replies = (refuse(400, "unknown field", kind="invalid_request_error"), count, answer(say("Bye.")), count)
    with FakeApi(api, *replies) as fake, worker(fake, tmp_path) as process:
        for turn, asked in enumerate(({"schema": SCHEMA}, {}, {"schema": SCHEMA}), 1):
            process.say("Count.", asked=asked)
            process.result(turn)
        process.end()
    assert [terminal.structured for terminal in process.terminals] == [{"n": 3}, None, {"n": 3}]
    assert fake.bodies[1]["tool_choice"] and fake.bodies[1]["tools"]
    assert "Structured output provided" in json.dumps(fake.bodies[2]) and "tools" not in fake.bodies[2]
    assert len(fake.bodies) == 4


@each_api
def test_an_answer_that_is_no_json_fails_a_turn_with_a_schema(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("three"))) as fake, worker(fake, tmp_path) as process:
        terminal = process.ask(asked={"schema": SCHEMA})
        assert process.ended() == 1
    assert terminal.error is not None and terminal.error.kind == "invalid_request"


@each_api
def test_usage_counts_all_tokens_of_the_turn(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("Hi."))) as fake, worker(fake, tmp_path) as process:
        usage = process.ask().usage
    if api == "anthropic":
        assert (usage.input_tokens, usage.output_tokens) == (1000, 40)
        assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (200, 30000)
    else:
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (700, 300, 40)
        assert usage.reasoning_tokens == 7


def test_usage_that_the_api_does_not_report_is_unknown_and_so_is_its_cost(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."), usage=False, model="gpt-4o")) as fake, worker(fake, tmp_path) as process:
        terminal = process.ask()
    assert (terminal.usage.input_tokens, terminal.usage.output_tokens, terminal.cost_usd) == (None, None, None)


@pytest.mark.parametrize(
    ("api", "model"), [("anthropic", "claude-sonnet-4-5"), ("chat", "gpt-4o"), ("responses", "gpt-4o")]
)
def test_a_known_model_has_an_estimated_cost(api: str, model: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("Hi."), model=model)) as fake, worker(fake, tmp_path, model=model) as process:
        terminal = process.ask()
    assert terminal.cost_usd is not None and terminal.cost_usd > 0
    assert process.result()["cost_source"] == "estimated"


def test_a_cost_of_the_provider_is_no_estimate(tmp_path: Path) -> None:
    with FakeApi("chat", answer(say("Hi."), model="gpt-4o", cost=0.0125)) as fake, worker(fake, tmp_path) as process:
        assert process.ask().cost_usd == 0.0125
    assert "cost_source" not in process.result()


@each_api
def test_an_unknown_model_has_no_cost(api: str, tmp_path: Path) -> None:
    with FakeApi(api, answer(say("Hi."))) as fake, worker(fake, tmp_path) as process:
        assert process.ask().cost_usd is None
    assert "cost_source" not in process.result()


@each_api
def test_an_answer_at_its_token_limit_says_so(api: str, tmp_path: Path) -> None:
    stop = {"anthropic": "max_tokens", "chat": "length", "responses": "max_output_tokens"}[api]
    with FakeApi(api, answer(say("Half an"), stop=stop)) as fake, worker(fake, tmp_path) as process:
        terminal = process.ask()
    assert (terminal.is_error, terminal.text, terminal.stop_reason) == (False, "Half an", "max_tokens")


@each_api
def test_the_models_of_a_provider_are_listed_as_json(api: str, tmp_path: Path) -> None:
    with FakeApi(api) as fake, worker(fake, tmp_path, "--models") as process:
        assert process.ended() == 0
    assert json.loads(b"".join(process.lines)) == ["a", "b"]
