"""How gemini is launched, and what programs depend on in what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from clisup.backends.base import Carried, LaunchRequest, RunEnd
from clisup.backends.gemini.adapter import GeminiAdapter
from clisup.backends.recording import told
from clisup.errors import UsageError
from clisup.model.events import TurnCompleted, TurnError, Unparsed
from clisup.model.lines.framing import Line
from tests.backends.recorded import Recording
from tests.journals import encode_event

ADAPTER = GeminiAdapter()
UUID = "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
REQUEST = LaunchRequest(
    command=("/bin/gemini",), prompt="Say hello.", native_session_id=f"_{UUID}", resume=False, cwd="/work"
)


def recording(name: str) -> Recording:
    return Recording.of(f"gemini/{name}")


# -- launch


def test_the_prompt_goes_to_stdin_and_stdout_to_a_file() -> None:
    spec = ADAPTER.launch(REQUEST)
    assert spec.stdin == "Say hello." and spec.stdin_eof
    assert spec.stdout_mode == "file"
    assert not any("hello" in part for part in spec.argv)


def test_values_of_a_caller_stand_in_the_equals_form() -> None:
    request = replace(REQUEST, model="--yolo", permission_mode="plan", args=("--extra",))
    assert ADAPTER.launch(request).argv == (
        "/bin/gemini", "--output-format=stream-json", "--skip-trust", f"--session-id=_{UUID}", "--model=--yolo",
        "--approval-mode=plan", "--extra",
    )  # fmt: skip


def test_a_session_is_resumed_by_its_id() -> None:
    assert f"--resume=_{UUID}" in ADAPTER.launch(replace(REQUEST, resume=True)).argv


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": " \n"}, "empty"),
        ({"prompt": "a\x00b"}, "character 1"),
        ({"prompt": "\ud800"}, "character 0"),
        ({"native_session_id": "5"}, "number"),
        ({"native_session_id": "latest"}, "number"),
        ({"native_session_id": "--help"}, "characters"),
        ({"native_session_id": None, "resume": True}, "without its id"),
        ({"permission_mode": "bypassPermissions"}, "no such mode"),
        ({"permission_mode": "yolo", "setting_sources": ""}, "trusted"),
        ({"model": " "}, "empty"),
        ({"system_prompt_file": "relative.md"}, "absolute"),
        ({"setting_sources": "project"}, "always reads the user's"),
        ({"setting_sources": "user,local"}, "always reads the user's"),
        ({"mcp_servers": {}}, "MCP servers"),
    ],
)
def test_what_gemini_cannot_take_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ADAPTER.launch(replace(REQUEST, **change))


@pytest.mark.fault(76)
def test_by_default_a_repository_is_trusted_only_after_its_settings_were_left_out() -> None:
    spec = ADAPTER.launch(REQUEST)
    assert spec.env["GEMINI_CLI_TRUST_WORKSPACE"] == "false" and "--skip-trust" in spec.argv
    assert {"GOOGLE_GEMINI_BASE_URL", "CODE_ASSIST_ENDPOINT", "HTTPS_PROXY", "GEMINI_SYSTEM_MD"} <= set(spec.closed_env)


@pytest.mark.parametrize(
    ("sources", "trust", "flag", "closed"),
    [("user,project", "true", False, False), ("", "false", False, True), (None, None, False, False)],
)
def test_setting_sources_say_how_far_a_repository_is_trusted(
    sources: str | None, trust: str | None, flag: bool, closed: bool
) -> None:
    spec = ADAPTER.launch(replace(REQUEST, setting_sources=sources))
    assert spec.env.get("GEMINI_CLI_TRUST_WORKSPACE") == trust
    assert ("--skip-trust" in spec.argv) is flag
    assert bool(spec.closed_env) is closed


@pytest.mark.fault(69)
@pytest.mark.parametrize(
    ("prompt", "sent"),
    [
        ("/help", "\n/help"),
        ("see @file.txt", "see \\@file.txt"),
        ("a@b, @ c @, @. @.x", "a\\@b, @ c @, @. \\@.x"),
        ("\\@known", "\\@known"),
        ('@"two words"', '\\@"two words"'),
        ("plain", "plain"),
    ],
)
def test_a_prompt_is_text_and_no_command(prompt: str, sent: str) -> None:
    spec = ADAPTER.launch(replace(REQUEST, prompt=prompt))
    assert spec.stdin == sent
    assert (spec.prompt_altered is not None) is (sent != prompt)
    assert ADAPTER.launch(replace(REQUEST, prompt=prompt, expand=True)).stdin == prompt


def test_a_system_prompt_goes_by_file() -> None:
    spec = ADAPTER.launch(replace(REQUEST, system_prompt="secret words", system_prompt_file="/state/prompt.txt"))
    assert spec.env["GEMINI_SYSTEM_MD"] == "/state/prompt.txt"
    assert not any("secret" in part for part in spec.argv)


def test_transcripts_are_found_by_the_beginning_of_the_id() -> None:
    pattern = ADAPTER.transcript_pattern(f"_{UUID}", {"HOME": "/home/u"})
    assert pattern == "/home/u/.gemini/tmp/*/chats/session-*-_3f2a77b.jsonl"
    moved = ADAPTER.transcript_pattern(f"_{UUID}", {"HOME": "/home/u", "GEMINI_CLI_HOME": "/other/"})
    assert moved is not None and moved.startswith("/other/.gemini/")
    assert ADAPTER.transcript_pattern("../x", {"HOME": "/home/u"}) is None
    assert ADAPTER.transcript_pattern(UUID, {}) is None


def test_a_transcript_says_whether_the_prompt_was_taken_and_answered() -> None:
    asked = {"id": "1", "type": "user", "content": [{"text": "\n/see \\@x"}]}
    answered = {"id": "2", "type": "gemini", "content": "Yes.", "tokens": {}}
    lines = [json.dumps(line).encode() for line in ({"sessionId": "s"}, asked, {"$set": {}}, answered)]
    assert ADAPTER.transcript_says(b"\n".join(lines), "/see @x") == "answered"
    assert ADAPTER.transcript_says(b"\n".join(lines[:3]), "/see @x") == "prompt_found"
    assert ADAPTER.transcript_says(b"\n".join(lines), "other") == "prompt_not_found"
    assert ADAPTER.transcript_says(b'{"type": "user", "content"', "x") == "prompt_not_found"


def test_the_version_stands_alone_on_its_line() -> None:
    assert ADAPTER.parse_version("warning\n0.61.0\n") == "0.61.0"
    assert ADAPTER.parse_version("gemini: command not found") is None


# -- what it says


def test_the_final_text_is_what_was_said_after_the_last_tool() -> None:
    assert recording("tool_ok").terminal().text == "It said hi."
    assert recording("text").terminal().text == "Hello, smile \U0001f600 line\u2028separator.\nBye."


def test_deltas_of_different_messages_have_different_ids() -> None:
    starts = recording("tool_ok").events("message_start")
    assert len({event.message_id for event in starts}) == len(starts) == 2
    shown = {event.message_id for event in recording("tool_ok").events("content_delta")}
    assert shown == {event.message_id for event in starts}


@pytest.mark.fault(75)
def test_usage_is_of_the_turn_alone_and_thoughts_are_part_of_the_output() -> None:
    for name, request in (("memory_first", 0), ("memory_resume", 1)):
        usage = recording(name).terminal().usage
        assert (usage.input_tokens, usage.cache_read_input_tokens) == (700 + request, 300)
        assert (usage.output_tokens, usage.reasoning_tokens) == (47 + request, 7)


@pytest.mark.parametrize("name", ["loop", "http_401", "cut_mid_stream"])
def test_zeros_of_a_failed_answer_are_not_taken_for_its_usage(name: str) -> None:
    assert recording(name).terminal().usage.source == "unknown"


@pytest.mark.parametrize(
    ("name", "kind", "status", "retryable"),
    [
        ("http_400_overflow", "context_overflow", 400, False),
        ("http_400_key", "authentication", 400, False),
        ("http_400_other", "invalid_request", 400, False),
        ("http_401", "authentication", 401, False),
        ("http_403", "permission", 403, False),
        ("http_404", "model_not_found", None, False),
        ("http_429_daily", "quota_exceeded", None, False),
        ("http_500", "server", 500, True),
        ("http_503", "overloaded", None, True),
        ("connection_refused", "network", None, True),
        ("cut_mid_stream", "network", None, True),
        ("empty", "server", None, True),
        ("thinking_only", "server", None, True),
        ("no_finish", "server", None, True),
        ("loop", "max_turns", None, False),
        ("hook_blocks", "permission", None, False),
        ("max_turns", "max_turns", None, False),
    ],
)
def test_a_failed_turn_has_its_kind(name: str, kind: str, status: int | None, retryable: bool) -> None:
    error = recording(name).terminal().error
    assert error is not None
    assert (error.kind, error.http_status, error.retryable) == (kind, status, retryable)


@pytest.mark.parametrize(
    ("name", "kind", "status", "retryable"),
    [
        ("http_402", "quota_exceeded", 402, False),
        ("http_404_plain", "model_not_found", None, False),
        ("http_422", "invalid_request", 422, False),
        ("http_502_plain", "server", 502, True),
        ("http_503_plain", "overloaded", 503, True),
    ],
)
def test_an_error_whose_words_say_no_kind_has_that_of_its_status_or_of_the_exit(
    name: str, kind: str, status: int | None, retryable: bool
) -> None:
    done = told(recording(name).file, ADAPTER)[-1]
    assert isinstance(done, TurnCompleted) and done.error is not None
    assert (done.outcome, done.error.kind) == ("failed", kind)
    assert (done.error.http_status, done.error.retryable) == (status, retryable)
    assert done.error.message.startswith("[API Error: ")


def test_a_model_that_is_not_found_is_known_in_any_spelling() -> None:
    decoded = decode({"type": "result", "status": "error", "error": {"message": "[API Error: model not found: x]"}})
    assert decoded.terminal is not None and decoded.terminal.error is not None
    assert decoded.terminal.error.kind == "model_not_found"


def test_a_rate_limit_says_when_to_come_back() -> None:
    error = recording("http_429").terminal().error
    assert error is not None and (error.kind, error.retry_after_s, error.retryable) == ("rate_limit", 1.0, True)


@pytest.mark.fault(63)
def test_success_without_an_answer_is_a_failure() -> None:
    decoded = decode({"type": "result", "status": "success", "stats": {"total_tokens": 3}})
    assert decoded.terminal is not None and decoded.terminal.error is not None
    assert decoded.terminal.error.kind == "server" and "without an answer" in decoded.terminal.error.message


def test_a_hook_that_asks_for_another_answer_is_no_end_and_the_answer_before_it_is_none() -> None:
    terminal = recording("hook_again").terminal()
    assert (terminal.error, terminal.text) == (None, "Guten Tag.")
    assert [event.blocks[0].text for event in recording("hook_again").events("message")] == ["Hello.", "Guten Tag."]


@pytest.mark.parametrize("name", ["tool_denied", "write_denied", "plan_mode"])
def test_tools_that_need_a_permission_are_told_as_denied(name: str) -> None:
    (denied,) = recording(name).events("permission_denied")
    assert recording(name).terminal().denied == (denied.name,)


def test_a_tool_that_no_one_knows_is_not_denied() -> None:
    assert not recording("unknown_tool").events("permission_denied")
    assert recording("unknown_tool").events("tool_result")[0].is_error


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("unknown_session", "session_not_found", "start the session anew"),
        ("bad_flag", "invalid_request", "Unknown arguments: such-flag"),
        ("no_key", "authentication", "GEMINI_API_KEY"),
        ("untrusted", "permission", "setting_sources"),
    ],
)
def test_a_refusal_to_start_is_explained(name: str, kind: str, words: str) -> None:
    error = ADAPTER.explain_exit(recording(name).run_end)
    assert error.kind == kind and words in error.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [(144, "invalid_request"), (145, "authentication"), (147, "permission"), (173, "rate_limit"), (244, "server"),
     (247, "overloaded"), (146, "quota_exceeded"), (166, "invalid_request"), (246, "server"),
     (41, "authentication"), (42, "invalid_request"), (53, "max_turns"), (55, "permission"),
     (0, "crashed"), (1, "crashed")],
)  # fmt: skip
def test_an_exit_without_a_result_has_its_kind(code: int, kind: str) -> None:
    assert ADAPTER.explain_exit(RunEnd(code, None, "")).kind == kind


LIMITED = """Ripgrep is not available. Falling back to GrepTool.
Attempt 1 failed: Resource has been exhausted (e.g. check quota).
Suggested retry after 37s.. Retrying after 41640ms...
"""
BROKEN = """Attempt 1 failed: Resource has been exhausted (e.g. check quota).
Suggested retry after 1s.. Retrying after 5230ms...
Attempt 2 failed with status 500. Retrying with backoff... _ApiError: {"error":{"code":500,"message":"An internal error."}}
    at throwErrorIfNotOK (file:///checkout/.e2e/gemini/node_modules/@google/gemini-cli/bundle/chunk-JDPZ4CE3.js:267833:24)
  status: 500
}
"""


@pytest.mark.parametrize(
    ("stderr", "answered", "kind"),
    [
        (LIMITED, False, "rate_limit"),
        (LIMITED, True, None),
        (BROKEN, False, "server"),
        ("Ripgrep is not available. Falling back to GrepTool.\n", False, None),
        ("Attempt 1 failed: fake 503. Max attempts reached\n", False, None),
    ],
)
def test_stderr_tells_of_the_failed_request_that_is_repeated(stderr: str, answered: bool, kind: str | None) -> None:
    error = ADAPTER.repeated(RunEnd(0, None, stderr), b"", answered=answered)
    assert (error.kind if error else None) == kind
    assert error is None or (error.message.startswith("Attempt ") and "throwErrorIfNotOK" not in error.message)


def test_a_killed_gemini_may_be_tried_again() -> None:
    error = ADAPTER.explain_exit(recording("tool_killed_sigkill").run_end)
    assert error.kind == "crashed" and error.retryable and "SIGKILL" in error.message


def test_a_wrong_session_flag_is_corrected() -> None:
    taken = RunEnd(42, None, 'Error starting session: Session ID "_x" already exists. Use --resume to resume it')
    assert ADAPTER.recovery(taken) == "resume"
    assert ADAPTER.recovery(recording("unknown_session").run_end) == "fresh"
    assert ADAPTER.recovery(TurnError(kind="server", message="overloaded")) is None


# -- hostile bytes


def decode(*frames: Any) -> Any:
    """The frames through one decoder; gives what the last one became."""
    decoder = ADAPTER.decoder(Carried())
    at = 0
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        result = decoder.decode(Line(at, at + len(data) + 1, data))
        at += len(data) + 1
    return result


DEEP = b'{"type":"tool_use","tool_id":"t","tool_name":"n","parameters":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"plain words", "malformed"),
        (b"null", "malformed"),
        (b"[]", "malformed"),
        (b'{"type": 5}', "malformed"),
        (b'{"type": "message", "role": "assistant", "content": 5}', "malformed"),
        (b'{"type": "message"}', "malformed"),
        (b'{"type": "tool_use", "tool_name": null}', "malformed"),
        (b'{"type": "tool_result", "tool_id": "t", "status": []}', "malformed"),
        (b'{"type": "error"}', "malformed"),
        (b'{"type": "thought", "content": "new"}', "unknown_type"),
        (DEEP, "malformed"),
        (b"[" * 100_000, "malformed"),
    ],
)
def test_what_is_no_frame_is_kept_as_unparsed(line: bytes, reason: str) -> None:
    (event,) = decode(line).events
    assert isinstance(event, Unparsed) and event.reason == reason


def test_odd_values_lose_a_field_and_not_the_turn() -> None:
    stats = {"total_tokens": 10**30, "input_tokens": "many", "output_tokens": -1, "cached": []}
    decoded = decode(
        {"type": "message", "role": "assistant", "content": "Hi."},
        {"type": "result", "status": "success", "stats": stats, "error": "none"},
    )
    assert decoded.terminal is not None
    assert decoded.terminal.text == "Hi." and not decoded.terminal.is_error
    assert decoded.terminal.usage.source == "unknown"


def test_broken_characters_are_mended_in_deltas_and_message_alike() -> None:
    half = rb'{"type":"message","role":"assistant","content":"a\ud83d","delta":true}'
    decoder = ADAPTER.decoder(Carried())
    delta = decoder.decode(Line(0, len(half) + 1, half)).events[-1]
    end = b'{"type":"result","status":"success","stats":{}}'
    whole = decoder.decode(Line(len(half) + 1, len(half) + len(end) + 2, end))
    assert delta.text == "a\ufffd" == whole.events[0].blocks[0].text == whole.terminal.text


def test_lines_that_are_cut_or_too_long_are_told() -> None:
    decoder = ADAPTER.decoder(Carried())
    cut = decoder.decode(Line(0, 9, b'{"type":"', complete=False)).events[0]
    long = decoder.decode(Line(9, 99, b'{"type":"m', oversize=True)).events[0]
    assert (cut.reason, long.reason, long.bytes) == ("truncated", "oversize", 90)


LINES = [line for name in ("tool_ok", "http_429", "loop", "plan_mode") for line in recording(name).lines()]


@given(st.data())
def test_no_damage_to_a_line_raises_or_makes_an_event_that_cannot_be_written(data: st.DataObject) -> None:
    decoder = ADAPTER.decoder(Carried())
    for line in data.draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=6)):
        at = data.draw(st.integers(0, len(line.data)))
        hurt = line.data[:at] + data.draw(st.binary(max_size=8)) + line.data[at + data.draw(st.integers(0, 12)) :]
        for event in decoder.decode(structs.replace(line, data=hurt)).events:
            encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")
