"""A history as claude's own session file: its lines, its place, and that the fork's rules read it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.claude.transcript import ClaudeSeed, config_directory, project_folder
from clisup.backends.demo import DemoAdapter
from clisup.backends.registry import BUILT_IN, get_adapter
from clisup.backends.transcripts import Seed
from clisup.model.prompts.history import History, HistoryMessage

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
HISTORY: TypeAdapter[list[HistoryMessage]] = TypeAdapter(History)
MESSAGES = [
    {"role": "user", "content": "Gr\u00fc\u00dfe \u2028 \ud83d\ude00"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "hm", "signature": "proof"}, {"type": "thinking", "text": "unsigned"},
        {"type": "text", "text": "b", "cache": True}, {"type": "tool_use", "id": "u1", "name": "Grep", "input": {"a": [1]}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "u1", "is_error": True,
         "content": [{"type": "text", "text": "c"}, {"type": "text", "text": ""}]},
    ]},
    {"role": "assistant", "content": "d"},
]  # fmt: skip


def lines(messages: list[dict[str, Any]], model: str | None = None) -> list[bytes]:
    seed = Seed(HISTORY.validate_python(messages), SESSION, "/work", model, "2026-01-01T00:00:00.000000Z")
    return list(ClaudeSeed().lines(seed))


def entries(messages: list[dict[str, Any]], model: str | None = None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(messages, model)]


def test_each_message_is_a_line_that_names_the_one_before() -> None:
    found = entries(MESSAGES)
    assert [entry["type"] for entry in found] == ["user", "assistant", "user", "assistant"]
    assert [entry["parentUuid"] for entry in found] == [None, *(entry["uuid"] for entry in found[:-1])]
    assert len({entry["uuid"] for entry in found}) == 4
    assert {(entry["sessionId"], entry["cwd"], entry["timestamp"]) for entry in found} == {
        (SESSION, "/work", "2026-01-01T00:00:00.000000Z")
    }


def test_the_contents_are_those_of_the_messages_api() -> None:
    first, second, third, last = (entry["message"] for entry in entries(MESSAGES))
    assert first == {"role": "user", "content": "Gr\u00fc\u00dfe \u2028 \U0001f600"}
    assert second["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "proof"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "u1", "name": "Grep", "input": {"a": [1]}},
    ]
    assert second["stop_reason"] == "tool_use" and last["stop_reason"] == "end_turn"
    assert third["content"] == [
        {"type": "tool_result", "tool_use_id": "u1", "content": [{"type": "text", "text": "c"}], "is_error": True}
    ]
    assert last["content"] == "d"


def test_lines_are_compact_utf8_and_the_same_each_time() -> None:
    found = lines(MESSAGES)
    assert found == lines(MESSAGES)
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in found)
    assert b'"type":"user"' in found[0] and "Grüße".encode() in found[0]
    half = lines([{"role": "user", "content": "\ud83d"}, {"role": "assistant", "content": "b"}])
    assert json.loads(half[0])["message"]["content"] == "\ud83d"


def test_a_model_is_named_only_where_the_session_names_one() -> None:
    assert "model" not in entries(MESSAGES)[1]["message"]
    assert [e["message"].get("model") for e in entries(MESSAGES, "claude-x")] == [None, "claude-x", None, "claude-x"]


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/work/a.b c", "-work-a-b-c"),
        ("/w\u00fc_\U0001f600", "-w----"),
        ("/" + "a" * 199, "-" + "a" * 199),
        # as 2.1.329 named it
        ("/tmp/" + "a" * 210, "-tmp-" + "a" * 195 + "-de6m7t"),
    ],
)
def test_the_folder_is_named_as_the_cli_names_it(cwd: str, folder: str) -> None:
    assert project_folder(cwd) == folder


def test_its_place_is_where_the_adapter_looks_for_transcripts() -> None:
    env = {"HOME": "/home/me"}
    for adapter, home in ((ClaudeAdapter(), "/home/me/.claude"), (DemoAdapter(), "/home/me/.local/state/clisup-demo")):
        assert adapter.seed.path(Seed([], SESSION, "/work", None, ""), env) == f"{home}/projects/-work/{SESSION}.jsonl"
        assert adapter.transcript_pattern(SESSION, env) == f"{home}/projects/*/{SESSION}.jsonl"
    assert config_directory({**env, "CLAUDE_CONFIG_DIR": "/else/"}) == "/else"
    assert ClaudeSeed().path(Seed([], SESSION, "/work", None, ""), {}) is None


def test_the_rules_of_a_fork_read_it_whole() -> None:
    found = lines(MESSAGES)
    plan = ClaudeAdapter().fork.plan(found, [], None, whole=True)
    assert len(plan.parts) == len(found)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_who_declares_histories_has_rules_for_them(kind: str) -> None:
    adapter = get_adapter(kind)
    assert (adapter.seed is not None) == adapter.capabilities.history
