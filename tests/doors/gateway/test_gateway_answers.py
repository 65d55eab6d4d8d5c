"""Answers, streams and errors of each dialect, read by the types of the official SDKs; and ids of calls: pure functions."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import trio
from anthropic.types import Message as ClaudeMessage
from anthropic.types import RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from clisup.client.aio_tools import ToolCall
from clisup.doors.gateway.answers import AnswerInfo, Dialect, WholeAnswer
from clisup.doors.gateway.anthropic_messages.answer import MESSAGES
from clisup.doors.gateway.failures import HttpFailure, failure_of
from clisup.doors.gateway.openai_chat.answer import CHAT
from clisup.doors.gateway.openai_responses.answer import RESPONSES
from clisup.doors.gateway.parked import ParkedCalls, call_id, call_mark, session_of_call
from clisup.doors.gateway.requests import AnswerRequest
from clisup.errors import KINDS, TURN_KINDS, WorldError
from clisup.llm.answers import FinishReason
from clisup.llm.failures import Overloaded, Uncertain
from clisup.llm.messages import Message, ToolResultBlock, ToolUseBlock
from clisup.model.usage import Usage

WHOLE = {CHAT.name: ChatCompletion, RESPONSES.name: Response, MESSAGES.name: ClaudeMessage}
PIECES: dict[str, Any] = {
    CHAT.name: ChatCompletionChunk, RESPONSES.name: ResponseStreamEvent, MESSAGES.name: RawMessageStreamEvent,
}  # fmt: skip
REQUEST = AnswerRequest("demo", (Message.user("Hi."),), tell_usage=True)
INFO = AnswerInfo("0f-t1-0", "demo", 1_800_000_000, "0f", REQUEST)
CALLS = (ToolUseBlock(id="call_1", name="add", input={"a": "ü"}), ToolUseBlock(id="call_2", name="add", input={}))
ANSWERS = {
    "text": WholeAnswer("Hello.", usage=Usage(3, 4, cache_read_input_tokens=2, reasoning_tokens=1)),
    "calls": WholeAnswer("So.", CALLS, FinishReason.TOOL_CALLS, Usage(3, 4)),
    "calls alone": WholeAnswer("", CALLS, FinishReason.TOOL_CALLS),
    "cut": WholeAnswer("Hel", reason=FinishReason.LENGTH),
    "refused": WholeAnswer("", reason=FinishReason.REFUSAL),
    "empty": WholeAnswer(),
}
EACH = [pytest.param(dialect, id=dialect.name) for dialect in (CHAT, RESPONSES, MESSAGES)]


def frames(dialect: Dialect, answer: WholeAnswer) -> list[dict[str, Any]]:
    writer = dialect.stream(INFO)
    text = b"".join([writer.begin(), *(writer.text(piece) for piece in answer.text), writer.end(answer)]).decode()
    datas = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert (datas[-1] == "[DONE]") == (dialect is CHAT)
    return [json.loads(data) for data in datas if data != "[DONE]"]


@pytest.mark.parametrize("dialect", EACH)
@pytest.mark.parametrize("name", ANSWERS)
def test_the_sdks_read_every_answer_and_every_frame(dialect: Dialect, name: str) -> None:
    WHOLE[dialect.name].model_validate(dialect.whole(INFO, ANSWERS[name]), strict=True)
    piece = TypeAdapter(PIECES[dialect.name])
    for frame in frames(dialect, ANSWERS[name]):
        piece.validate_python(frame)


def test_chat_tells_text_calls_reason_and_usage() -> None:
    body = CHAT.whole(INFO, ANSWERS["calls"])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "So."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":"ü"}'}
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert CHAT.whole(INFO, ANSWERS["cut"])["choices"][0]["finish_reason"] == "length"
    assert CHAT.whole(INFO, ANSWERS["empty"])["usage"] is None
    chunks = frames(CHAT, ANSWERS["text"])
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == "Hello."
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_responses_number_their_events_and_tell_items_and_states() -> None:
    events = frames(RESPONSES, ANSWERS["calls"])
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message", "function_call", "function_call"]
    assert [e["output_index"] for e in events if e["type"] == "response.output_item.added"] == [0, 1, 2]
    cut = RESPONSES.whole(INFO, ANSWERS["cut"])
    assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}


def test_messages_number_their_blocks_and_tell_the_reason() -> None:
    events = frames(MESSAGES, ANSWERS["calls"])
    assert [e["index"] for e in events if e["type"] == "content_block_start"] == [0, 1, 2]
    assert [e["index"] for e in events if e["type"] == "content_block_stop"] == [0, 1, 2]
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert MESSAGES.whole(INFO, ANSWERS["refused"])["stop_reason"] == "refusal"
    assert MESSAGES.whole(INFO, ANSWERS["empty"])["usage"] == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 413, 415, 429, 500, 502, 503, 504])
def test_errors_have_the_form_of_their_api(status: int) -> None:
    failure = HttpFailure(status, "x", "Why.", "model")
    ErrorResponse.model_validate(MESSAGES.error(failure))
    for dialect in (CHAT, RESPONSES):
        assert dialect.error(failure)["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("dialect", EACH)
def test_a_stream_that_fails_ends_with_the_error(dialect: Dialect) -> None:
    frame = dialect.stream(INFO).fail(HttpFailure(503, "overloaded", "Too much."))
    data = json.loads(frame.decode().partition("data: ")[2])
    assert "Too much." in json.dumps(data)
    if dialect is RESPONSES:
        TypeAdapter(PIECES[dialect.name]).validate_python(data)


@pytest.mark.parametrize("kind", sorted({*KINDS, *TURN_KINDS}))
def test_every_kind_of_an_error_has_a_status_and_a_limit_always_says_when(kind: str) -> None:
    failure = failure_of(WorldError("Why.", kind=kind) if kind in KINDS else Overloaded("Why.", kind=kind))
    assert failure.status in (400, 403, 404, 409, 429, 500, 502, 503, 504)
    assert (failure.status == 429) == ("retry-after" in failure.headers)
    assert (failure.status == 500) == (kind in UNEXPECTED), kind


UNEXPECTED = (
    "internal", "method_not_found", "request_cancelled", "approval_not_found", "approval_already_resolved", "option_needed", "cancelled",
    "tool_call_not_found", "worktree_refused", "git_failed", "configuration", "fleet_away", "box_unknown", "max_turns",
    "daemon_already_running", "unsupported_system", "service_manager",
)  # fmt: skip


def test_a_recorded_failure_is_not_worth_another_try() -> None:
    error = Overloaded("Why.", kind="overloaded", retryable=True)
    assert failure_of(error).headers == {"x-should-retry": "true"}
    assert failure_of(error, recorded=True).headers == {"x-should-retry": "false"}
    assert failure_of(Uncertain("Why.", kind="crashed")).kind == "uncertain"


def test_the_id_of_a_call_names_its_session_and_fits_every_api() -> None:
    session = str(uuid.uuid4())
    for prefix in ("call_", "toolu_"):
        id_ = call_id(prefix, session, "toolu_01ABC")
        assert len(id_) <= 40 and session_of_call(id_) == (session, call_mark("toolu_01ABC"))
    for other in ("call_1", "toolu_01A09q90qw90lq917835lq9", "", "call_" + "x" * 32, "call_" + "!" * 22 + "0" * 10):
        assert session_of_call(other) is None


async def test_a_result_waits_for_its_call_and_a_call_for_its_result() -> None:
    calls = ParkedCalls()
    uses = [ToolUseBlock(id=id_, name="add", input={"a": 1}) for id_ in ("one", "two")]
    results = {use.id: ToolResultBlock(tool_use_id=use.id, content=use.id) for use in uses}
    told: list[Any] = []

    async def wait(number: int, tool_use_id: str | None) -> None:
        call = ToolCall("s", f"bridge-{number}", "add", {"a": 1}, tool_use_id=tool_use_id)
        told.append((number, (await calls.wait(call)).content))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, 1, "two")
        await trio.testing.wait_all_tasks_blocked()
        calls.bring(uses, results)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, 2, "one")
    assert told == [(1, "two"), (2, "one")]
    without = ParkedCalls()
    without.bring(uses, results)
    calls, told = without, []
    await wait(3, None)
    await wait(4, None)
    await wait(3, None)
    assert told == [(3, "one"), (4, "two"), (3, "one")]
