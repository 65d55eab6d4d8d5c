"""What claude's exits and error codes mean. The stderr lines are those of 2.1.329, word for word."""

from __future__ import annotations

import json
from pathlib import Path
from signal import Signals

import pytest

from clisup.backends.base import RunEnd
from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.claude.errors import ClaudeFailure, explain_report, explain_retry
from clisup.backends.registry import get_adapter
from clisup.model.events import TurnError
from tests.backends.recorded import Recording

ADAPTER = ClaudeAdapter()
METAS = sorted((Path(__file__).parents[1] / "recordings" / "claude").glob("*/*.meta.json"))
ROOT = "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons\n"
IN_USE = "Error: Session ID 7c9e6679-7425-40de-944b-e07fc1f90ae7 is already in use.\n"
UNKNOWN = "No conversation found with session ID: 7c9e6679-7425-40de-944b-e07fc1f90ae7\n"


def explain(stderr: str = "", *, code: int | None = 1, signal: int | None = None) -> TurnError:
    return ADAPTER.explain_exit(RunEnd(exit_code=code, signal=signal, stderr=stderr))


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (IN_USE, "invalid_request"),
        (UNKNOWN, "session_not_found"),
        ('Error: --resume requires a valid session ID or session title when used with --print.', "session_not_found"),
        ("Error: Invalid session ID. Must be a valid UUID.", "invalid_request"),
        ("error: unknown option '--wat'", "invalid_request"),
        ("error: option '--permission-mode <mode>' argument 'bogus' is invalid. Allowed choices are", "invalid_request"),
        ("Error: Input must be provided either through stdin or as a prompt argument when using", "invalid_request"),
        ("Error: Input contained only whitespace. Provide a prompt with text through stdin", "invalid_request"),
        ("Error processing --setting-sources: Invalid setting source: bogus.", "invalid_request"),
        ("Error: Invalid MCP configuration:\nMCP config file not found: /nope", "invalid_request"),
        ("Error: When using --print, --output-format=stream-json requires --verbose", "invalid_request"),
        ("Error: --fork-session requires --resume or --continue", "invalid_request"),
        ("Error: MCP tool mcp__none__ask (passed via --permission-prompt-tool) not found. Available MCP tools: none", "invalid_request"),
        ("Not logged in \u00b7 Please run /login", "authentication"),
    ],
)  # fmt: skip
def test_a_refusal_to_start_has_its_kind_and_keeps_the_clis_own_words(stderr: str, kind: str) -> None:
    error = explain(stderr)
    assert error.kind == kind
    assert stderr.strip() in error.message
    assert not error.retryable


@pytest.mark.fault(70)
def test_root_with_bypass_is_refused_with_the_way_out() -> None:
    error = explain(ROOT)
    assert error.kind == "permission"
    assert "IS_SANDBOX=1" in error.message
    assert "another user" in error.message


@pytest.mark.fault(14)
def test_an_exit_that_no_table_knows_is_a_crash_with_the_last_words() -> None:
    error = explain("x" * 10_000 + "the end", code=7)
    assert error.kind == "crashed"
    assert "exited with code 7" in error.message
    assert error.message.endswith("the end")
    assert len(error.message) < 2300


@pytest.mark.fault(71)
def test_exit_0_without_a_result_is_a_crash() -> None:
    assert explain(code=0).kind == "crashed"


@pytest.mark.fault(6)
@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [
        (None, Signals.SIGKILL, "was killed by SIGKILL"),
        (143, None, "exited with code 143 (as on SIGTERM)"),
        (129, None, "exited with code 129 (as on SIGHUP)"),
        (None, 200, "was killed by signal 200"),
        (None, None, "ended in an unknown way"),
    ],
)
def test_a_signal_is_told_in_words_and_apart_from_an_exit_code(
    code: int | None, signal: int | None, words: str
) -> None:
    assert words in explain(code=code, signal=signal).message


@pytest.mark.fault(68)
def test_the_way_to_recover_is_told_from_the_exit_and_from_the_error() -> None:
    for stderr, way in ((IN_USE, "resume"), (UNKNOWN, "fresh"), (ROOT, None), ("", None)):
        end = RunEnd(exit_code=1, signal=None, stderr=stderr)
        assert ADAPTER.recovery(end) == way
        assert ADAPTER.recovery(ADAPTER.explain_exit(end)) == way


@pytest.mark.parametrize(
    ("report", "kind"),
    [
        (ClaudeFailure(status=503), "server"),
        (
            ClaudeFailure(code="server_error", terminal_reason="api_error", text="Unable to connect to API (ENOENT)"),
            "network",
        ),
        (ClaudeFailure(status=418), "invalid_request"),
        (ClaudeFailure(code="unknown", api_error="connection_failed"), "network"),
        (ClaudeFailure(code="invalid_request", status=400, text="Prompt is too long"), "context_overflow"),
        (ClaudeFailure(code="authentication_failed", status=403), "permission"),
        (ClaudeFailure(code="billing_error", status=400, api_type="invalid_request_error"), "quota_exceeded"),
        (ClaudeFailure(code="rate_limit", status=429, api_error="usage_limit_reached"), "quota_exceeded"),
        (ClaudeFailure(code="max_output_tokens"), "output_limit"),
        (ClaudeFailure(subtype="error_max_structured_output_retries"), "invalid_request"),
        (ClaudeFailure(terminal_reason="api_error"), "server"),
        (
            ClaudeFailure(terminal_reason="completed", code="authentication_failed", status=401),
            "authentication",
        ),  # 2.1.197
        (ClaudeFailure(subtype="error_during_execution"), "crashed"),
    ],
)
def test_the_most_exact_word_decides_the_kind(report: ClaudeFailure, kind: str) -> None:
    assert explain_report(report).kind == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("context_window", "context_overflow"),
        ("oauth_revoked", "authentication"),
        ("http_403", "permission"),
        ("connection_lost", "network"),
    ],
)
def test_a_recorded_failure_has_the_kind_that_says_what_to_do(name: str, kind: str) -> None:
    error = Recording.of(f"claude/{name}").terminal().error
    assert error is not None and error.kind == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "API Error: Could not load AWS credentials \u00b7 Could not load credentials from any providers",
            "authentication",
        ),
        ("Could not load the default credentials. Browse to https://cloud.google.com", "authentication"),
        ("ENOSPC: no space left on device, write", "storage_failed"),
        ("Claude AI usage limit reached|1795900000", "quota_exceeded"),
        ("5-hour limit reached \u2219 resets 4pm", "quota_exceeded"),
        ("Weekly limit reached", "quota_exceeded"),
        ("You're out of extra usage", "quota_exceeded"),
        ("the limit reached by the loop", "crashed"),
    ],
)
def test_a_text_without_a_code_has_its_kind(text: str, kind: str) -> None:
    assert explain_report(ClaudeFailure(text=text)).kind == kind


def test_only_a_login_of_claude_is_renewed_by_claude() -> None:
    assert "claude auth login" in explain_retry(code="authentication_failed", status=401).message
    cloud = explain_retry(code="cloud_credential_error", status=None)
    assert cloud.kind == "authentication" and "claude auth login" not in cloud.message and "AWS" in cloud.message


def test_a_revoked_login_says_at_the_first_retry_to_log_in_again() -> None:
    first, *_ = Recording.of("claude/oauth_revoked").events("retry")
    assert first.error is not None
    assert (first.error.kind, first.error.http_status) == ("authentication", 403)
    assert "log in again" in first.error.message


@pytest.mark.fault(64)
@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [("authentication_failed", 401, "authentication"), ("unknown", None, "network"), ("overloaded", 529, "overloaded"),
     ("rate_limit", 429, "rate_limit"), ("server_error", 502, "server"), (None, None, "network")],
)  # fmt: skip
def test_a_retry_says_why(code: str | None, status: int | None, kind: str) -> None:
    assert explain_retry(code=code, status=status).kind == kind


@pytest.mark.parametrize("path", METAS, ids=[path.stem for path in METAS])
def test_every_recorded_exit_without_a_result_is_explained(path: Path) -> None:
    meta = json.loads(path.read_text())
    name = meta["signal"]
    end = RunEnd(exit_code=meta["exit_code"], signal=Signals[name] if name else None, stderr=meta["stderr"])
    error = ADAPTER.explain_exit(end)
    refused = bool(meta["stderr"]) and not path.with_name(path.name.replace(".meta.json", ".jsonl")).stat().st_size
    assert (error.kind == "crashed") is not refused or error.kind in ("session_not_found", "crashed")


def test_an_exit_is_told_of_the_backend_that_has_left() -> None:
    """The demo is claude's twin, and no claude is there to be looked at."""
    end = RunEnd(exit_code=3, signal=None, stderr="")
    assert get_adapter("demo").explain_exit(end).message.startswith("demo exited with code 3")
    assert get_adapter("claude").explain_exit(end).message.startswith("claude exited with code 3")
