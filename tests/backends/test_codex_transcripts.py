"""Forks and histories of codex as rollout files. tests/e2e/codex/test_codex_sessions.py has recorded the file of three turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.fork import CodexFork
from clisup.backends.codex.history import CodexSeed
from clisup.backends.codex.native_sessions import CodexNativeSessions
from clisup.backends.transcripts import Seed
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from clisup.model.prompts.history import History, HistoryMessage
from clisup.model.sessions.turn_trace import TurnTrace

[RECORDED] = (Path(__file__).parent / "native_sessions" / "codex_turns").iterdir()
OLD, NEW = RECORDED.stem[-36:], "7c9e6679-7425-40de-944b-e07fc1f90ae7"
LINES = RECORDED.read_bytes().splitlines(keepends=True)
FIRST = TurnTrace("t1", 1, 15, "Use your tools.", ["msg_10"], done=True)
SECOND = TurnTrace("t2", 2, 7, "Slowly.", done=True)  # interrupted before the model said a word
THIRD = TurnTrace("t3", 3, 9, "After it.", ["msg_30"], done=True)
TURNS = [FIRST, SECOND, THIRD]
RULES = CodexFork()
HISTORY: TypeAdapter[list[HistoryMessage]] = TypeAdapter(History)


def cut(upto: str | None, turns: list[TurnTrace] = TURNS, lines: list[bytes] = LINES, *, whole: bool = False) -> bytes:
    data, plan = b"".join(lines), RULES.plan(lines, turns, upto, whole=whole)
    return b"".join(RULES.copy(data[start:end], NEW) for start, end in plan.parts)


@pytest.mark.parametrize(("upto", "turns"), [("t1", 1), ("t2", 2), ("t3", 3)])
def test_a_cut_is_the_beginning_of_the_file_up_to_the_end_of_the_turn(upto: str, turns: int) -> None:
    found = cut(upto)
    assert found.count(b'"type":"task_started"') == turns
    assert found.splitlines()[1:] == b"".join(LINES).splitlines()[1 : found.count(b"\n")]
    assert [text in found for text in (b"Use your tools.", b"Slowly.", b"After it.")] == [True, turns > 1, turns > 2]
    assert (b"turn_aborted" in found) == (turns > 1)


def test_the_copy_differs_in_the_id_of_its_first_line_alone() -> None:
    found = cut("t3", whole=True).splitlines(keepends=True)
    assert found[1:] == LINES[1:]
    assert found[0] == LINES[0].replace(OLD.encode(), NEW.encode())
    meta = json.loads(found[0])["payload"]
    assert (meta["id"], meta["session_id"]) == (NEW, NEW)


def test_a_line_that_quotes_the_first_line_stays_as_it_is() -> None:
    said = json.dumps({"type": "response_item", "payload": {"text": LINES[0].decode()}}, separators=(",", ":")).encode()
    assert RULES.copy(said, NEW) == said


def test_a_turn_without_an_end_is_waited_for_and_so_is_a_message_that_is_not_written() -> None:
    assert RULES.plan(LINES, TURNS, "t3", whole=True).complete
    assert not RULES.plan(LINES[:-1], TURNS, "t3", whole=True).complete
    assert RULES.plan(LINES[:-1], TURNS, "t2", whole=False).complete
    late = TurnTrace("t3", 3, 9, "After it.", ["msg_30", "msg_31"], done=True)
    assert not RULES.plan(LINES, [FIRST, SECOND, late], "t3", whole=False).complete


def test_an_incomplete_last_line_is_left_out() -> None:
    assert cut("t3", whole=True) == cut("t3", lines=[*LINES, b'{"type":"event_msg"'], whole=True)


def test_a_turn_that_codex_never_wrote_is_refused_or_left_out() -> None:
    unwritten = TurnTrace("t4", 4, 5, "Never", ["msg_90"], done=True)
    with pytest.raises(UsageError) as refused:
        cut("t4", [*TURNS, unwritten])
    assert refused.value.kind == "turn_not_found"
    silent = TurnTrace("t4", 4, 5, "Never", done=True)
    assert cut("t4", [*TURNS, silent]) == cut("t3")
    with pytest.raises(UsageError):
        cut("t1", [FIRST], [])


MESSAGES = [
    {"role": "user", "content": "Gr\u00fc\u00dfe"},
    {"role": "assistant", "content": [
        {"type": "thinking", "text": "hm", "signature": "proof"}, {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "u1", "name": "mcp__a__b__c", "input": {"a": [1]}},
        {"type": "tool_use", "id": "u2", "name": "ls", "input": {}},
    ]},
    {"role": "user", "content": [
        {"type": "text", "text": "and"},
        {"type": "tool_result", "tool_use_id": "u2", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": " "}]},
        {"type": "tool_result", "tool_use_id": "u1", "content": "e"},
    ]},
    {"role": "assistant", "content": "f"},
]  # fmt: skip
SEED = Seed(HISTORY.validate_python(MESSAGES), NEW, "/work", "m", "2026-03-04T05:06:07.000008Z")


def written() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CodexSeed().lines(SEED)]


def test_the_items_for_the_model_are_those_of_its_api_with_results_before_texts() -> None:
    items = [entry["payload"] for entry in written() if entry["type"] == "response_item"]
    assert [(item["type"], item.get("call_id") or item["content"][0]["text"]) for item in items] == [
        ("message", "Gr\u00fc\u00dfe"), ("message", "b"), ("function_call", "u1"), ("function_call", "u2"),
        ("function_call_output", "u2"), ("function_call_output", "u1"), ("message", "and"), ("message", "f"),
    ]  # fmt: skip
    assert (items[2]["namespace"], items[2]["name"]) == ("mcp__a", "b__c") and "namespace" not in items[3]
    assert (items[4]["output"], items[5]["output"]) == ([{"type": "input_text", "text": "c"}], "e")


def test_a_person_sees_turns_and_the_list_of_sessions_has_the_first_prompt() -> None:
    events = [entry["payload"]["type"] for entry in written() if entry["type"] == "event_msg"]
    turn = ["task_started", "item_completed", "item_completed", "task_complete"]
    assert events == turn * 2
    assert [entry["ordinal"] for entry in written()] == list(range(len(written())))
    assert list(CodexSeed().lines(SEED)) == list(CodexSeed().lines(SEED))
    data = b"".join(CodexSeed().lines(SEED))
    found = CodexNativeSessions().read(f"rollout-2026-03-04T05-06-07-{NEW}.jsonl", data, data)
    assert found is not None and (found.prompt, found.cwd) == ("Gr\u00fc\u00dfe", "/work")


@pytest.mark.parametrize("env", [{"HOME": "/h"}, {"CODEX_HOME": "/h/.codex/", "HOME": "/x"}])
def test_its_place_is_where_codex_would_put_it(env: dict[str, str]) -> None:
    path = CodexSeed().path(SEED, env)
    assert path == f"/h/.codex/sessions/2026/03/04/rollout-2026-03-04T05-06-07-{NEW}.jsonl"
    assert CodexAdapter().transcript_pattern(NEW, env) == f"/h/.codex/sessions/*/*/*/rollout-*-{NEW}.jsonl"
    assert CodexSeed().path(SEED, {}) is None


def test_a_thread_without_a_provider_gets_the_configured_one_in_a_second_request() -> None:
    """Measured 0.169.0: the words of the refusal, and of the list."""
    request = LaunchRequest(command=("codex",), prompt="Hi.", cwd="/work", native_session_id=NEW, resume=True)
    decoder = CodexAdapter().decoder(Carried(), request)
    data = {"type": "modelProviderNotConfigured", "modelProvider": ""}
    refusal = {"id": 2, "error": {"code": -32600, "data": data, "message": "This chat uses model provider"}}
    (asked,) = decoder.decode(_line(refusal)).replies
    assert isinstance(asked, str) and json.loads(asked)["method"] == "modelProvider/list"
    (again,) = decoder.decode(_line({"id": 5, "result": {"data": [], "defaultProviderId": "mine"}})).replies
    assert isinstance(again, str) and json.loads(again)["params"]["modelProvider"] == "mine"
    assert decoder.decode(_line(refusal)).terminal is not None
    other = {**refusal, "error": {**refusal["error"], "data": {**data, "modelProvider": "gone"}}}  # type: ignore[dict-item]
    assert CodexAdapter().decoder(Carried(), request).decode(_line(other)).terminal is not None


def _line(frame: dict[str, Any]) -> Line:
    data = json.dumps(frame).encode()
    return Line(0, len(data) + 1, data)


@pytest.mark.parametrize(("upto", "total"), [("t1", 2001), ("t2", 3003), ("t3", 4006)])
def test_a_fork_begins_with_the_total_that_its_source_had_at_the_turn(upto: str, total: int) -> None:
    """Otherwise its first turn counts the tokens of the source, too."""
    told = RULES.plan(LINES, TURNS, upto, whole=False).usage_total
    assert told is not None and told.total_input_tokens == total


def test_a_fork_without_a_total_begins_at_none() -> None:
    lines = [line for line in LINES if b"token_count" not in line]
    assert RULES.plan(lines, TURNS, "t3", whole=True).usage_total is None
