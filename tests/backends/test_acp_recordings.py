"""What the ACP decoder makes of each recorded agent: their ways of telling tools, tokens and failed requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.backends.recorded import Recording

OPENCODE = "acp/opencode-1.18.34"
CODEX = "acp/codex-acp-2.6.0"
CLAUDE = "acp/claude-agent-acp-0.101.0"
COPILOT = "acp/copilot-1.0.102"
CLINE = "acp/cline-3.0.65"


def calls(name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(use.name, use.input) for use in Recording.of(name).events("tool_use")]


def results(name: str) -> list[tuple[str, bool]]:
    told = Recording.of(name).events("tool_result")
    assert all(result.blocks is None for result in told)
    return [(result.content, result.is_error) for result in told]


# Tools


def test_a_call_of_opencode_is_told_with_the_models_input_and_the_tools_name() -> None:
    first, second = calls(f"{OPENCODE}/tool_ok")
    assert first == ("bash", {"command": "echo a", "description": "run a", "cwd": "/scratch/cwd"})
    assert second == ("bash", {"command": "echo b"})  # it asked for the permission first, with less
    assert calls(f"{OPENCODE}/mcp") == [("good_add", {"a": 2, "b": 3})]


@pytest.mark.parametrize("name", [f"{agent}/tool_denied" for agent in (OPENCODE, CODEX, CLAUDE, COPILOT, CLINE)])
def test_an_approval_names_the_tool_as_its_call_does(name: str) -> None:
    recording = Recording.of(name)
    (use,), (asked,) = recording.events("tool_use"), recording.events("approval_requested")
    assert (asked.tool_name, asked.tool_use_id) == (use.name, use.tool_use_id)
    assert all("touch made.txt" in str(told.input) for told in (use, asked))


def test_a_call_of_claude_agent_acp_is_told_when_its_input_has_grown_whole() -> None:
    name, told = calls(f"{CLAUDE}/write")[0]
    assert (name, set(told), told["content"]) == ("Write", {"file_path", "content"}, "one " * 19 + "one")
    assert calls(f"{CLAUDE}/tool_ok") == [("Bash", {"command": "touch a.txt; echo a", "description": "run a"})]


def test_a_call_of_copilot_is_told_while_it_is_pending_because_nothing_says_that_it_runs() -> None:
    recording = Recording.of(f"{COPILOT}/tool_ok")
    lines = zip(recording.lines(), recording.decode(), strict=False)
    told = [line.data for line, decoded in lines for event in decoded.events if event.type == "tool_use"]
    assert [b'"status":"pending"' in data for data in told] == [True, True]


def test_the_output_of_a_command_of_codex_acp_is_in_its_result() -> None:
    assert results(f"{CODEX}/tool_ok") == [("a\n", False), ("b\n", False)]
    assert results(f"{CODEX}/tool_fail") == [("exit code 3\nout\nerr\n", True)]


@pytest.mark.parametrize(
    ("name", "output"),
    [(f"{OPENCODE}/tool_fail", "out\nerr\n"), (f"{CLAUDE}/tool_fail", "Exit code 3\nout\nerr"), (f"{COPILOT}/tool_fail", "out\nerr\n")],
)  # fmt: skip
def test_the_output_of_a_failed_command_is_in_its_result(name: str, output: str) -> None:
    ((content, _),) = results(name)
    assert output in content


# Tokens


@pytest.mark.parametrize(
    ("name", "source", "tokens"),
    [
        (f"{OPENCODE}/memory", "reported", 1000 + 40),
        (f"{OPENCODE}/tool_ok", "estimated", 1002 + 42),  # it counts the last of three requests
        (f"{OPENCODE}/tool_cancelled", "unknown", None),  # it says 0, though a request was answered
        (f"{CODEX}/tool_ok", "reported", 3 * 1000 + 3 + 3 * 40 + 3),
        (f"{COPILOT}/tool_ok", "reported", 3 * 1000 + 3 + 3 * 40 + 3),
        (f"{CLAUDE}/tool_ok", "reported", 2 * 31200 + 3 + 2 * 40 + 1),
        (f"{CODEX}/http_429", "unknown", None),
    ],
)
def test_tokens_that_are_not_of_the_whole_turn_are_no_report(name: str, source: str, tokens: int | None) -> None:
    usage = Recording.of(name).terminal().usage
    assert (usage.source, usage.total_tokens) == (source, tokens)


def test_a_context_of_no_tokens_is_none_that_was_measured() -> None:
    recording = Recording.of(f"{OPENCODE}/tool_cancelled")
    assert b'"sessionUpdate":"usage_update","used":0' in recording.file.data
    assert recording.events("usage") == []


def test_a_cost_of_nothing_is_none_that_is_known() -> None:
    recording = Recording.of(f"{OPENCODE}/tool_ok")
    assert b'"cost":{"amount":0,"currency":"USD"}' in recording.file.data
    assert recording.terminal().cost_usd is None


# Failed requests


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        (f"{CODEX}/http_429", "rate_limit", 429),
        (f"{CODEX}/http_401", "authentication", None),
        (f"{COPILOT}/http_429", "rate_limit", 429),
        (f"{COPILOT}/http_401", "authentication", 401),
        (f"{COPILOT}/http_401_late", "authentication", 401),
        (f"{CLINE}/http_429", "rate_limit", None),
        (f"{CLINE}/http_401", "authentication", None),
        (f"{CLAUDE}/http_429", "rate_limit", 429),
        (f"{CLAUDE}/http_401", "authentication", None),
        (f"{OPENCODE}/http_401", "authentication", None),
    ],
)
def test_a_request_that_failed_fails_the_turn_also_where_the_agent_says_end_turn(
    name: str, kind: str, status: int | None
) -> None:
    terminal = Recording.of(name).terminal()
    assert terminal.error is not None
    assert (terminal.error.kind, terminal.error.http_status, terminal.text) == (kind, status, "")


def test_the_message_of_a_failed_request_is_the_agents_last_word_alone() -> None:
    codex, copilot = (Recording.of(f"{agent}/http_429").terminal().error for agent in (CODEX, COPILOT))
    assert codex is not None and copilot is not None
    said = "exceeded retry limit, last status: 429 Too Many Requests"
    assert codex.message == f"the agent refused session/prompt: {said}"
    assert copilot.message.startswith("the agent refused session/prompt: Error: Failed to get response")


def test_an_answer_of_copilots_model_that_begins_like_an_error_is_an_answer() -> None:
    terminal = Recording.of(f"{COPILOT}/looks_like_an_error").terminal()
    assert (terminal.error, terminal.text) == (None, "Error: no such file, the log says.")


# Sessions


def said(name: str) -> list[dict[str, Any]]:
    """The requests of the decoder."""
    replies = (reply for decoded in Recording.of(name).decode() for reply in decoded.replies)
    return [json.loads(reply) for reply in replies if isinstance(reply, str)]


def test_an_agent_is_logged_in_before_its_session_by_the_method_of_its_table() -> None:
    first, second, *_ = said(f"{CODEX}/login")
    assert (first["method"], first["params"]) == ("authenticate", {"methodId": "api-key"})
    assert second["method"] == "session/new"
    assert Recording.of(f"{CODEX}/login").terminal().text == "You first said: Use your tools."


@pytest.mark.parametrize(
    ("name", "methods"),
    [
        (
            f"{CODEX}/login_unset",
            "api-key (Use an API key to authenticate), chat-gpt-device-code (Sign in to ChatGPT by",
        ),
        (
            f"{CLINE}/not_logged_in",
            "cline (Sign in with Cline), cline-pass (Sign in with ClinePass), openai-codex (Sign",
        ),
    ],
)
def test_an_agent_that_wants_a_login_fails_the_turn_with_its_methods(name: str, methods: str) -> None:
    error = Recording.of(name).terminal().error
    assert error is not None and error.kind == "authentication"
    assert f", or set the backend's auth_method: {methods}" in error.message


@pytest.mark.parametrize("agent", [CODEX, CLAUDE])
def test_a_system_prompt_reaches_the_model_of_an_agent_that_takes_one(agent: str) -> None:
    (opened,) = [request for request in said(f"{agent}/system_prompt") if request["method"] == "session/new"]
    assert opened["params"]["systemPrompt"] == {"mode": "append", "content": [{"type": "text", "text": "Be brief."}]}
    assert Recording.of(f"{agent}/system_prompt").terminal().text == "I was told to be brief."


def test_of_two_selectors_for_models_the_one_of_this_name_is_the_models() -> None:
    """cline has a selector of providers in the same category, and tells it first."""
    (init,) = Recording.of(f"{CLINE}/memory").events("session_init")
    assert (init.model, init.permission_mode) == ("gpt-4o", "act")


@pytest.mark.parametrize("agent", [OPENCODE, CODEX, CLAUDE, COPILOT, CLINE])
def test_a_session_is_resumed_with_its_memory(agent: str) -> None:
    terminal = Recording.of(f"{agent}/memory_resume").terminal()
    assert (terminal.error, terminal.text) == (None, "You first said: My name is Ada.")


@pytest.mark.parametrize("agent", [OPENCODE, CODEX, CLAUDE, COPILOT, CLINE])
def test_a_cancelled_turn_is_interrupted(agent: str) -> None:
    terminal = Recording.of(f"{agent}/tool_cancelled").terminal()
    assert (terminal.interrupted, terminal.error and terminal.error.kind) == (True, "cancelled")
