"""What claude's recordings must say beyond their stories in expected/: the facts that a program depends on."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.backends.base import Carried, Terminal
from clisup.backends.claude.decoder import ClaudeDecoder
from clisup.model.events import Retracted
from tests.backends.recorded import Recording


def terminals(name: str, carried: float | None = 0.0) -> list[Terminal]:
    decoder = ClaudeDecoder(Carried(carried))
    results = [decoder.decode(line) for line in Recording.of(f"claude/{name}").lines()]
    return [result.terminal for result in results if result.terminal]


def events(name: str) -> list[Any]:
    return Recording.of(f"claude/{name}").events()


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("name", "kind", "status", "retryable"),
    [
        ("http_401_final", "authentication", 401, False),
        ("http_401_oauth", "authentication", 401, False),
        ("not_logged_in", "authentication", None, False),
        ("http_403", "permission", 403, False),
        ("http_404", "model_not_found", 404, False),
        ("http_413", "context_overflow", 413, False),
        ("http_400_too_long", "context_overflow", 400, False),
        ("http_400_other", "invalid_request", 400, False),
        ("http_429_final", "rate_limit", 429, True),
        ("http_429_long", "rate_limit", 429, True),
        ("http_429_oauth_limit", "quota_exceeded", 429, True),
        ("billing", "quota_exceeded", 400, False),
        ("http_500_final", "server", 500, True),
        ("http_502_html", "server", 502, True),
        ("http_529", "overloaded", 529, True),
        ("connection_refused", "network", None, True),
        ("max_turns", "max_turns", None, False),
        ("max_budget", "budget", None, False),
        ("refusal_final", "refusal", None, False),
        ("unknown_session", "session_not_found", None, False),
        ("stall_mid_stream_sigint", "cancelled", None, False),
        ("tool_killed_sigint", "cancelled", None, False),
    ],
)
def test_a_failure_has_its_kind_whatever_the_subtype_says(
    name: str, kind: str, status: int | None, retryable: bool
) -> None:
    (terminal,) = terminals(name)
    assert terminal.is_error
    assert terminal.text == ""
    assert terminal.error is not None
    assert (terminal.error.kind, terminal.error.http_status, terminal.error.retryable) == (kind, status, retryable)
    assert terminal.error.message
    assert "ede_diagnostic" not in terminal.error.message


@pytest.mark.fault(64)
def test_the_first_retry_after_a_401_already_says_authentication() -> None:
    retry = next(event for event in events("http_401_final") if event.type == "retry")
    assert retry.error.kind == "authentication"
    assert retry.error.http_status == 401


@pytest.mark.fault(65)
@pytest.mark.parametrize("name", ["cut_mid_stream", "sse_error_event"])
def test_text_of_a_cut_stream_is_retracted_and_the_final_text_is_right(name: str) -> None:
    (retracted,) = [event for event in events(name) if isinstance(event, Retracted)]
    assert (retracted.message_id, retracted.from_index) == ("msg_fake_0000", 0)
    assert terminals(name)[0].text == "The whole answer."


@pytest.mark.fault(65)
def test_a_tool_that_ran_before_the_cut_is_not_retracted() -> None:
    assert not [event for event in events("cut_after_tool") if isinstance(event, Retracted)]
    (terminal,) = terminals("cut_after_tool")
    assert (terminal.is_error, terminal.text) == (False, "Went on.")


@pytest.mark.fault(66)
def test_a_background_task_gives_a_second_turn_that_says_it_is_a_follow_up() -> None:
    assert [terminal.follow_up for terminal in terminals("background_bash")] == [False, True]


@pytest.mark.fault(20)
def test_background_work_is_known_from_its_announcement_to_its_end() -> None:
    decoder = ClaudeDecoder(Carried(0.0))
    lines = Recording.of("claude/background_bash").lines()
    assert [len(decoder.background) for line in lines if decoder.decode(line).terminal] == [1, 0]


@pytest.mark.fault(67)
def test_an_unknown_session_is_one_result_without_init() -> None:
    assert events("unknown_session") == []
    (terminal,) = terminals("unknown_session", carried=0.5)
    assert terminal.error is not None
    assert terminal.error.kind == "session_not_found"
    assert terminal.cost_total_usd == 0.5, "a start that failed has not reset the session's cost"


@pytest.mark.fault(75)
def test_cost_and_usage_are_of_the_turn_alone_across_resumes_and_forks() -> None:
    total = 0.0
    for name in ("memory", "memory_resume", "memory_resume_again", "memory_fork"):
        (terminal,) = terminals(name, carried=total)
        assert terminal.cost_usd == pytest.approx(0.0118, abs=0.0002)
        assert terminal.usage.output_tokens in (40, 41, 42, 43)
        total = terminal.cost_total_usd or 0.0
    assert total == pytest.approx(0.0474, abs=0.0002)


def test_usage_counts_subagents_and_a_turn_that_the_budget_ended() -> None:
    assert terminals("subagent")[0].usage.output_tokens == 166
    assert terminals("max_budget")[0].usage.output_tokens == 40


@pytest.mark.fault(25)
@pytest.mark.parametrize("name", ["text", "surrogate"])
def test_a_character_cut_between_two_deltas_comes_out_whole(name: str) -> None:
    text = "".join(event.text for event in events(name) if event.type == "content_delta" and event.kind == "text")
    assert "\U0001f600" in text
    assert "\ufffd" not in text


def test_a_limit_that_resets_says_when_and_a_warning_is_no_failure() -> None:
    (terminal,) = terminals("http_429_oauth_limit")
    assert terminal.error is not None
    assert terminal.error.resets_at == "2100-01-01T00:00:00Z"
    (warned,) = terminals("rate_limit_warning_oauth")
    (limit,) = [event for event in events("rate_limit_warning_oauth") if event.type == "rate_limit"]
    assert not warned.is_error
    assert (limit.status, limit.utilization) == ("allowed_warning", 0.93)


def test_refused_tools_are_told_once_when_they_are_refused_and_again_at_the_end() -> None:
    assert [event.name for event in events("tool_denied") if event.type == "permission_denied"] == ["Write"]
    assert terminals("tool_denied")[0].denied == ("Write",)


def test_the_heartbeat_of_a_tool_names_the_call_itself() -> None:
    (progress,) = [event for event in events("tool_heartbeat") if event.type == "tool_progress"]
    assert (progress.tool_use_id, progress.elapsed_s) == ("toolu_hb", 30)


@pytest.mark.fault(38)
def test_session_init_tells_where_the_credential_came_from() -> None:
    init = events("text")[0]
    assert init.credential_source == "ANTHROPIC_API_KEY"


def test_structured_output_comes_with_the_terminal() -> None:
    assert terminals("json_schema")[0].structured == {"answer": 42}


def test_a_thinking_block_keeps_its_makers_proof() -> None:
    blocks = [block for event in events("thinking") if event.type == "message" for block in event.blocks]
    assert [(block.kind, block.signature) for block in blocks if block.kind == "thinking"] == [
        ("thinking", "c2lnbmF0dXJl")
    ]
