"""A history as qwen's own chat file: its lines, and its place."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from clisup.backends.qwen.adapter import QwenAdapter
from clisup.backends.qwen.history import QwenSeed
from clisup.backends.transcripts import Seed
from clisup.model.prompts.history import History, HistoryMessage

SESSION = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
HISTORY: TypeAdapter[list[HistoryMessage]] = TypeAdapter(History)
MESSAGES = [
    {"role": "user", "content": "Gr\u00fc\u00dfe"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "hm", "signature": "proof"}, {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "u1", "name": "grep", "input": {"a": [1]}}, {"type": "tool_use", "id": "u2", "name": "ls", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "u2", "is_error": True,
         "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
        {"type": "text", "text": "and"}, {"type": "tool_result", "tool_use_id": "u1", "content": "e"},
    ]},
    {"role": "assistant", "content": "f"},
]  # fmt: skip


def lines(messages: list[dict[str, Any]]) -> list[bytes]:
    seed = Seed(HISTORY.validate_python(messages), SESSION, "/work", "m", "2026-01-01T00:00:00.000000Z")
    return list(QwenSeed().lines(seed))


def test_each_entry_names_the_one_before_and_results_are_entries_of_their_own() -> None:
    found = [json.loads(line) for line in lines(MESSAGES)]
    assert [(e["type"], e["message"]["role"]) for e in found] == [
        ("user", "user"), ("assistant", "model"), ("tool_result", "user"), ("user", "user"), ("assistant", "model"),
    ]  # fmt: skip
    assert [e["parentUuid"] for e in found] == [None, *(e["uuid"] for e in found[:-1])]
    assert {(e["sessionId"], e["cwd"], e["timestamp"]) for e in found} == {
        (SESSION, "/work", "2026-01-01T00:00:00.000000Z")
    }


def test_contents_are_parts_without_thinking_and_an_error_is_an_error() -> None:
    parts = [json.loads(line)["message"]["parts"] for line in lines(MESSAGES)]
    assert parts == [
        [{"text": "Gr\u00fc\u00dfe"}],
        [{"text": "b"}, {"functionCall": {"id": "u1", "name": "grep", "args": {"a": [1]}}},
         {"functionCall": {"id": "u2", "name": "ls", "args": {}}}],
        [{"functionResponse": {"id": "u2", "name": "ls", "response": {"error": "c\nd"}}},
         {"functionResponse": {"id": "u1", "name": "grep", "response": {"output": "e"}}}],
        [{"text": "and"}],
        [{"text": "f"}],
    ]  # fmt: skip


def test_lines_are_compact_utf8_and_the_same_each_time() -> None:
    found = lines(MESSAGES)
    assert found == lines(MESSAGES)
    assert (
        all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in found)
        and "Gr\u00fc\u00dfe".encode() in found[0]
    )


def test_its_place_is_where_the_adapter_looks_for_transcripts() -> None:
    adapter = QwenAdapter()
    for env, base in (({"HOME": "/home/me"}, "/home/me/.qwen"), ({"HOME": "/h", "QWEN_HOME": "/else/"}, "/else")):
        assert (
            adapter.seed.path(Seed([], SESSION, "/w \U0001f600", None, ""), env)
            == f"{base}/projects/-w---/chats/{SESSION}.jsonl"
        )
        assert adapter.transcript_pattern(SESSION, env) == f"{base}/projects/*/chats/{SESSION}.jsonl"
    assert adapter.seed.path(Seed([], SESSION, "/w", None, ""), {"QWEN_HOME": "no/absolute"}) is None
