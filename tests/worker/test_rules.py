"""Rules of the worker: delays before repeats, rate-limit headers, names of tools, schemas, and calls that run side by side."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from clisup.stream_json.frames import Frames
from clisup.worker.apis.failures import MAX_WAIT_S, Endpoint, RequestFailure, of_connection, retry_after
from clisup.worker.apis.names import api_names
from clisup.worker.apis.retries import FIRST_S, LONGEST_S, delay_of
from clisup.worker.apis.schemas import is_strict
from clisup.worker.conversation import messages_of, request_messages
from clisup.worker.tools.call_runner import HEARTBEAT_S, MAX_CALLS, CallRunner
from clisup.worker.tools.mcp_servers import McpTool, ToolOutcome
from clisup.worker.tools.permissions import Permissions
from clisup.worker.turn_usage import TurnUsage
from clisup.worker.turn_writer import TurnWriter

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-7"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-reset-tokens": "20ms"}, 360.0),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-tokens": "2s"}, 2.0),
        ({"x-ratelimit-reset": str(int((NOW + 9) * 1000))}, 9.0),
        ({"anthropic-ratelimit-requests-reset": "2023-11-14T22:13:25Z"}, 5.0),
    ],
)  # fmt: skip
def test_headers_say_when_the_api_can_be_asked_again(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == (seconds if seconds is None else pytest.approx(seconds))


def test_delays_double_up_to_a_limit_and_a_long_wait_is_none() -> None:
    failure = RequestFailure("x", again=True)
    assert [delay_of(failure, attempt, 0) for attempt in (1, 2, 3, 99)] == [
        FIRST_S,
        2 * FIRST_S,
        4 * FIRST_S,
        LONGEST_S,
    ]
    assert delay_of(failure, 1, 1) == FIRST_S * 0.75
    assert delay_of(RequestFailure("x", again=True, retry_after_s=MAX_WAIT_S), 1, 0) == MAX_WAIT_S
    assert delay_of(RequestFailure("x", again=True, retry_after_s=MAX_WAIT_S + 1), 1, 0) is None
    assert delay_of(RequestFailure("x"), 1, 0) is None


def test_a_key_is_redacted_unless_it_is_a_placeholder() -> None:
    assert Endpoint("u", "K", "sk-12345").redact("no sk-12345!") == "no [redacted]!"
    assert Endpoint("u", "K", "none").redact("none of them") == "none of them"
    assert "sk-12345" not in repr(Endpoint("u", "K", "sk-12345"))
    assert "sk-12345" not in of_connection("sk-12345", Endpoint("u", "K", "sk-12345")).message


def test_names_that_an_api_takes_stay_and_others_get_a_short_one_of_their_own() -> None:
    names = ["mcp__a__b", "mcp__a__b.c", "mcp__a__b c", "mcp__a__" + "x" * 80]
    found = api_names(names)
    assert found["mcp__a__b"] == "mcp__a__b"
    assert len(set(found.values())) == 4 and max(map(len, found.values())) <= 64


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"anyOf": [{"type": "object"}]}, False),
        ({"type": "array", "items": {"type": "string"}}, True),
    ],
)
def test_strict_mode_is_asked_for_where_the_schema_allows_it(schema: dict[str, Any], strict: bool) -> None:
    assert is_strict(schema) is strict


def test_a_transcript_becomes_messages_in_turns_with_a_result_for_each_call() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "mcp__a.b__c", "input": {}}
    entries: list[dict[str, Any]] = [
        {"type": "user", "message": {"content": "One."}},
        {"type": "user", "message": {"content": [{"type": "text", "text": " "}, {"type": "text", "text": "Two."}]}},
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "assistant", "message": {"content": []}},
        {"type": "system", "message": {"content": "no"}},
        {"type": "user", "message": {"content": "Three."}},
    ]
    sent = request_messages(messages_of(entries), lambda name: name.replace(".", "_"))
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert [block["text"] for block in sent[0]["content"]] == ["One.", "Two."]
    assert sent[1]["content"][0]["name"] == "mcp__a_b__c"
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text"]


class SlowServers:
    """Servers with one tool, which takes its time."""

    def __init__(self) -> None:
        self.tools = {"mcp__s__slow": McpTool("s", "slow", "", {}, False)}
        self.running = self.most = 0

    async def call(self, tool: McpTool, arguments: Any, tool_id: str) -> ToolOutcome:
        self.running += 1
        self.most = max(self.most, self.running)
        await trio.sleep(2.5 * HEARTBEAT_S)
        self.running -= 1
        return ToolOutcome("done")


async def test_a_slow_tool_gives_signs_of_life_and_not_all_calls_run_at_once(autojump_clock: MockClock) -> None:
    frames: list[dict[str, Any]] = []
    writer = TurnWriter(Frames("s", "m"), frames.append, [], TurnUsage(lambda model, usage: None))
    permissions = Permissions("bypassPermissions", "", asks=False, send=frames.append, set_state=lambda state: None)
    servers: Any = SlowServers()
    calls = [{"id": f"c{n}", "name": "mcp__s__slow", "input": {}} for n in range(MAX_CALLS + 1)]
    runner = CallRunner(calls, {}, servers, permissions, writer)
    assert await runner.run() is False
    assert servers.most == MAX_CALLS and len(runner.results) == MAX_CALLS + 1
    beats = [frame for frame in frames if frame["type"] == "tool_progress" and frame["parent_tool_use_id"] == "c0"]
    assert [beat["elapsed_time_seconds"] for beat in beats] in ([30.0, 60.0], [])
    assert sum(frame["type"] == "tool_progress" for frame in frames) == 2 * (MAX_CALLS + 1)
