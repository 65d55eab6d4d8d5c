"""What programs depend on in qwen's decoder, beyond the stories of its recordings."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from clisup.backends.base import ApprovalAnswer, Carried, Decoded, LaunchRequest, RunEnd
from clisup.backends.qwen.adapter import QwenAdapter
from clisup.backends.qwen.decoder import QwenDecoder, own_words
from clisup.backends.qwen.errors import explain_error
from clisup.errors import UsageError
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE, Usage
from tests.backends.recorded import Recording


def of(name: str) -> Recording:
    return Recording.of(f"qwen/{name}")


def decode(decoder: QwenDecoder, frame: Any) -> Decoded:
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    return decoder.decode(Line(0, len(data) + 1, data, False, True))


def fresh() -> QwenDecoder:
    return QwenDecoder(Carried(usage=NO_USAGE))


def test_all_blocks_of_an_answer_belong_to_the_one_message_that_was_started() -> None:
    started = of("reasoning").events("message_start")
    messages = of("reasoning").events("message")
    deltas = of("reasoning").events("content_delta")
    assert len(started) == 1 and [m.blocks[0].kind for m in messages] == ["thinking", "text"]
    assert {event.message_id for event in [*messages, *deltas]} == {started[0].message_id}
    assert [delta.index for delta in deltas] == [0, 0, 1]


def test_usage_and_stop_reason_are_told_at_the_messages_end_without_the_cached_tokens() -> None:
    (stop, last) = of("tool_ok").events("message_stop")
    assert stop.stop_reason == "tool_use" and last.stop_reason is None
    assert stop.usage == Usage(input_tokens=700, output_tokens=40, cache_read_input_tokens=300, source="reported")


def test_a_resumed_turns_usage_is_its_own() -> None:
    first, second = of("memory").terminal(), of("memory_resume").terminal()
    assert (first.usage.input_tokens, first.usage.output_tokens) == (700, 40)
    assert (second.usage.input_tokens, second.usage.output_tokens) == (700, 41)
    assert second.usage_total is not None and second.usage_total.output_tokens == 81


def test_without_a_known_total_a_resumed_turns_usage_is_unknown() -> None:
    frame = {"type": "result", "is_error": False, "result": "x", "usage": {"input_tokens": 9, "output_tokens": 9}}
    terminal = decode(QwenDecoder(Carried()), frame).terminal
    assert terminal is not None and terminal.usage == Usage()
    assert terminal.usage_total is not None and terminal.usage_total.output_tokens == 9


def test_a_turn_that_failed_before_its_first_request_leaves_the_total_as_it_was() -> None:
    carried = Usage(input_tokens=5, output_tokens=5, source="reported")
    frame = {"type": "result", "is_error": True, "usage": {"input_tokens": 0, "output_tokens": 0}, "error": {}}
    terminal = decode(QwenDecoder(Carried(usage=carried)), frame).terminal
    assert terminal is not None and terminal.usage == Usage() and terminal.usage_total == carried


@pytest.mark.parametrize(
    "name", ["http_401", "http_429", "http_500", "connection_refused", "not_logged_in", "no_usage"]
)
def test_zeros_for_a_request_without_an_answer_or_without_a_count_tell_no_usage(name: str) -> None:
    assert of(name).terminal().usage == Usage()


@pytest.mark.parametrize("name", ["fails_later_resume", "no_usage_resume"])
def test_a_total_that_has_not_grown_by_a_turn_in_which_the_model_was_asked_tells_no_usage(name: str) -> None:
    recording = of(name)
    terminal = recording.terminal()
    assert terminal.usage == Usage() and terminal.usage_total == recording.carried.usage


def test_a_turn_that_asked_no_model_used_nothing() -> None:
    usage = of("hook_blocks").terminal().usage
    assert (usage.input_tokens, usage.output_tokens, usage.source) == (0, 0, "reported")


def test_an_api_error_is_a_synthetic_message_and_no_delta() -> None:
    (message,) = of("http_401").events("message")
    assert message.synthetic and message.blocks[0].text == "[API Error: 401 Incorrect API key provided: fake.]"
    assert of("http_401").events("content_delta") == []
    terminal = of("http_401").terminal()
    assert terminal.text == "" and terminal.error is not None
    assert (terminal.error.message, terminal.error.retryable) == ("401 Incorrect API key provided: fake.", False)


def test_the_partial_answer_before_an_api_error_stays_the_models_own() -> None:
    answer, error = of("cut_always").events("message")
    assert answer.blocks[0].text == "The answer is" * 4 and answer.synthetic is None
    assert error.synthetic and error.blocks[0].text.startswith("[API Error: terminated")
    assert "".join(delta.text for delta in of("cut_always").events("content_delta")) == answer.blocks[0].text


def test_an_answer_that_only_begins_like_an_error_is_an_answer() -> None:
    (message,) = of("looks_like_an_error").events("message")
    assert message.synthetic is None
    assert "".join(delta.text for delta in of("looks_like_an_error").events("content_delta")) == message.blocks[0].text


def test_a_repeated_request_takes_back_what_it_had_said_and_a_continued_one_does_not() -> None:
    (gone,) = of("cut_reasoning").events("retracted")
    assert gone.message_id == of("cut_reasoning").events("message_start")[0].message_id
    assert of("cut_mid_stream").events("retracted") == []
    assert len(of("cut_mid_stream").events("retry")) == 1


def test_an_answer_that_is_cut_by_its_length_is_told_by_its_retries_alone() -> None:
    """0.24.4 has no stop reason for it, on stdout or elsewhere."""
    assert ["cut by its length" in event.error.message for event in of("length").events("retry")] == [True] * 4
    assert of("length").terminal().stop_reason is None and of("length").terminal().error is None


def test_a_limit_after_a_tools_result_takes_nothing_back() -> None:
    """The answer that called the tool is over: only the next request is repeated."""
    decoder = fresh()
    head = {"id": "m1", "model": "m"}
    decode(decoder, {"type": "stream_event", "event": {"type": "message_start", "message": head}})
    call = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
    decode(decoder, {"type": "assistant", "message": {"id": "m1", "content": [call]}})
    result = {"type": "tool_result", "tool_use_id": "c1", "is_error": False, "content": "x"}
    decode(decoder, {"type": "user", "message": {"content": [result]}})
    told = {"reason": "retry", "attempt": 1, "maxRetries": 3, "delayMs": 60000, "discardedToolCalls": 0}
    (retry,) = decode(decoder, {"type": "system", "subtype": "retry", "data": told}).events
    assert (retry.type, retry.delay_s, retry.error.kind) == ("retry", 60.0, "rate_limit")  # type: ignore[attr-defined]


def test_the_failure_of_an_mcp_tool_has_the_tools_own_words() -> None:
    (result,) = of("mcp_error").events("tool_result")
    assert (result.content, result.is_error) == ("it went wrong", True)


CALL = """MCP tool 'f' reported tool error for function call: {"name":"f","args":{"a":"' with response: ["}} with response: """


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            '[{"functionResponse":{"response":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}}]',
            "a\nb",
        ),
        ('[{"functionResponse":{"response":{"content":[]}}}]', None),
        ('[{"functionResponse":{"response":{"content":[{"type":"te', None),
        ('[{"functionResponse":{"response":{"content":[{"type":"text","text":3}]}}}]', None),
        ("see\n[Tool 'f' provided the following image data with mime-type: image/png]\n[image/png]", None),
        ("[" * 100_000, None),
        ("", None),
    ],
)
def test_words_of_a_failure_that_cannot_be_told_apart_stay_as_they_are(said: str, words: str | None) -> None:
    assert own_words(CALL + said) == (CALL + said if words is None else words)
    assert own_words(f"It said: {CALL}{said}") == f"It said: {CALL}{said}"


def test_denied_tools_are_events_with_the_reason_that_the_model_was_told() -> None:
    denied = of("tool_denied").events("permission_denied")
    assert [event.name for event in denied] == ["write_file", "run_shell_command"]
    assert all("permission" in event.reason for event in denied)
    assert of("tool_denied").terminal().denied == ("write_file", "run_shell_command")


def test_a_subagent_is_a_task() -> None:
    assert [(task.state, task.kind) for task in of("subagent").events("task")] == [
        ("running", "general-purpose"),
        ("completed", "general-purpose"),
    ]


@pytest.mark.parametrize(
    ("name", "kind", "status", "retryable"),
    [
        ("http_400", "invalid_request", 400, False),
        ("http_401", "authentication", 401, False),
        ("http_403", "permission", 403, False),
        ("http_404", "model_not_found", 404, False),
        ("context_overflow", "context_overflow", 400, False),
        ("http_429", "rate_limit", 429, True),
        ("quota", "quota_exceeded", 429, False),
        ("http_500", "server", 500, True),
        ("http_503", "overloaded", 503, True),
        ("connection_refused", "network", None, True),
        ("cut_always", "network", None, True),
        ("not_logged_in", "authentication", None, False),
    ],
)
def test_a_failure_has_its_kind(name: str, kind: str, status: int | None, retryable: bool) -> None:
    error = of(name).terminal().error
    assert error is not None and (error.kind, error.http_status, error.retryable) == (kind, status, retryable)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("unknown_session", "session_not_found"),
        ("session_in_use", "invalid_request"),
        ("max_turns", "max_turns"),
        ("max_tool_calls", "budget"),
        ("bad_flag", "invalid_request"),
        ("stall_sigterm", "crashed"),
        ("stall_mid_stream_sigint", "crashed"),
    ],
)
def test_an_exit_without_a_result_is_explained(name: str, kind: str) -> None:
    recording = of(name)
    assert not [one for one in recording.decode() if one.terminal]
    assert QwenAdapter().explain_exit(recording.run_end).kind == kind


def test_no_recording_made_more_requests_than_the_cap_lets() -> None:
    for name in ("http_429", "quota", "http_500", "http_503"):
        assert of(name).meta["api_requests"] == 7


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("[API Error: 418 I am a teapot]", "invalid_request"),
        ("[API Error: 504 <html>]", "server"),
        ("[API Error: Model stream ended with empty response text.]", "server"),
        ("Something else", "crashed"),
        ("", "crashed"),
    ],
)
def test_words_that_no_recording_has_still_have_a_kind(said: str, kind: str) -> None:
    error = explain_error(said)
    assert error.kind == kind and error.message


def test_exits_that_nobody_knows_say_how_and_what_stderr_said() -> None:
    explain = QwenAdapter().explain_exit
    assert "killed by SIGKILL" in explain(RunEnd(None, 9, "")).message
    assert explain(RunEnd(130, None, "")).retryable
    assert "out of memory" in explain(RunEnd(134, None, "JavaScript heap out of memory")).message


def entry(kind: str, **event: Any) -> bytes:
    """A line of a chat file of 0.24.4, without what nobody reads."""
    told = {"subtype": "ui_telemetry", "systemPayload": {"uiEvent": event}} if event else {}
    return json.dumps({"type": kind, **told}).encode()


REFUSED = entry("system", **{"event.name": "qwen-code.api_error", "error_message": "429 Rate limit reached."})
ANSWERED = entry("system", **{"event.name": "qwen-code.api_response", "status_code": 200})
CALLED = entry("system", **{"event.name": "qwen-code.tool_call"})


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([entry("user"), REFUSED], "rate_limit"),
        ([entry("user"), ANSWERED, entry("assistant"), CALLED, entry("tool_result"), REFUSED], "rate_limit"),
        ([entry("user"), REFUSED, entry("system"), b'{"type": "sys', b"[]", b'{"systemPayload": 3}'], "rate_limit"),
        ([entry("user"), REFUSED, entry("assistant")], None),
        ([entry("user"), REFUSED, ANSWERED, CALLED], None),
        ([REFUSED, entry("user")], None),
        ([], None),
    ],
)
def test_the_transcript_tells_of_the_failed_request_that_is_repeated(lines: list[bytes], kind: str | None) -> None:
    error = QwenAdapter().repeated(RunEnd(130, None, ""), b"\n".join(lines), answered=False)
    assert (error.kind if error else None) == kind


ERROR_DELTA = {"type": "text_delta", "text": "[API Error: "}
HOSTILE: list[Any] = [
    b"", b"\xff\xfe", b"null", b"[]", b"3", b'"x"', b"{", b'{"type":"result"}', b"[" * 100_000,
    {"type": None}, {"type": ["result"]}, {"type": "system"}, {"type": "system", "subtype": 3},
    {"type": "system", "subtype": "init", "tools": 3, "mcp_servers": "x", "session_id": []},
    {"type": "system", "subtype": "retry"}, {"type": "system", "subtype": "retry", "data": [1]},
    {"type": "system", "subtype": "retry", "data": {"attempt": 10**400, "delayMs": "1", "preserveText": 0, "discardedToolCalls": -1}},
    {"type": "system", "subtype": "task_started"}, {"type": "system", "subtype": "task_notification", "data": {"task_id": 3}},
    {"type": "system", "subtype": "model_fallback", "data": {"a": "x" * 9999}},
    {"type": "stream_event"}, {"type": "stream_event", "event": {"type": "goal_state"}},
    {"type": "stream_event", "event": {"type": "tool_progress", "tool_use_id": []}},
    {"type": "stream_event", "event": {"type": "content_block_delta", "index": -(10**30), "delta": ERROR_DELTA}},
    {"type": "stream_event", "event": {"type": "content_block_delta", "index": 7, "delta": ERROR_DELTA}},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": "x"}], "usage": "none", "stop_reason": 3}},
    {"type": "assistant", "message": {"content": "[API Error: ", "usage": {"input_tokens": 2**60}}},
    {"type": "assistant", "message": {"content": [{"type": "text", "text": None}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result"}]}},
    {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": [[]]}]}},
    {"type": "result", "is_error": "yes"},
    {"type": "result", "is_error": True, "error": "x", "usage": [], "permission_denials": [3, {"tool_name": 4}]},
    {"type": "result", "is_error": True, "permission_denials": [{"tool_name": "t", "tool_use_id": []}]},
    {"type": "result", "is_error": False, "result": 3, "usage": {"input_tokens": -5, "output_tokens": 1e300}},
    b'{"type":"result","is_error":false,"result":"\\ud800"}',
    {"type": "nobody knows"},
]  # fmt: skip


def test_no_line_makes_the_decoder_raise_and_it_still_hears_the_end() -> None:
    decoder = fresh()
    for frame in [*HOSTILE, *reversed(HOSTILE)]:
        for event in decode(decoder, frame).events:
            msgspec.json.encode(event)
    for line in (Line(0, 10, b'{"type":"resu', False, False), Line(0, 10**9, b"{", True, True)):
        assert [event.type for event in decoder.decode(line).events] == ["unparsed"]
    end = decode(decoder, {"type": "result", "is_error": False, "result": "still here", "usage": {}})
    assert end.terminal is not None and end.terminal.text == "still here"


def test_an_unknown_frame_is_kept_as_such() -> None:
    (event,) = decode(fresh(), {"type": "nobody knows"}).events
    assert (event.type, event.reason) == ("unparsed", "unknown_type")  # type: ignore[attr-defined]


def test_a_success_for_which_the_model_was_never_asked_is_a_failure() -> None:
    """All that the CLI tells of a hook that refused the prompt."""
    terminal = Recording.of("qwen/hook_blocks").terminal()
    assert terminal.error is not None and (terminal.error.kind, terminal.text) == ("permission", "")
    assert "UserPromptSubmit" in terminal.error.message


# A live process

LIVE = LaunchRequest(command=("qwen",), prompt="x", native_session_id=None, resume=False, cwd="/", live=True)
INIT = {"type": "system", "subtype": "init", "session_id": "s"}
DONE = {"type": "result", "is_error": False, "result": "x", "usage": {"input_tokens": 9, "output_tokens": 9}}


def asks(name: str, call: str, given: Any) -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": name, "tool_use_id": call, "input": given}
    return {"type": "control_request", "request_id": "r", "request": request}


def test_a_tool_that_the_cli_denied_by_itself_waits_for_no_approval() -> None:
    decoder = QwenDecoder(Carried(usage=NO_USAGE), LIVE)
    (asked,) = decode(decoder, asks("run_shell_command", "c", {"command": "id"})).events
    block = {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": "Control request timeout"}
    events = decode(decoder, {"type": "user", "message": {"role": "user", "content": [block]}}).events
    assert [event.type for event in events] == ["tool_result", "approval_resolved"]
    assert asked.type == "approval_requested" and decoder.answer("0:r", ApprovalAnswer("allow")) is None


def test_answers_go_by_the_place_of_the_question() -> None:
    decoder = QwenDecoder(Carried(usage=NO_USAGE), LIVE)
    decode(decoder, asks("ask_user_question", "c", {"questions": [{"question": "Who?"}, {"question": "Why?"}]}))
    given = ApprovalAnswer("allow", updated_input={"answers": {"Why?": "So.", "Other?": "No."}})
    answer = json.loads(decoder.answer("0:r", given) or "")["response"]["response"]
    assert answer["updatedInput"] == {"answers": {"1": "So."}}
    with pytest.raises(UsageError):
        decoder.answer("0:r", ApprovalAnswer("allow", by_rule=True))
    assert '"deny"' in (decoder.answer("0:r", ApprovalAnswer("deny", by_rule=True)) or "")


@pytest.mark.parametrize("own", [True, False])
def test_a_turn_that_a_notification_began_is_no_answer_to_a_prompt(own: bool) -> None:
    decoder = QwenDecoder(Carried(usage=NO_USAGE), LIVE)
    note = {"type": "system", "subtype": "task_notification", "data": {"task_id": "m", "status": "running"}}
    for frame in (note, INIT) if own else (INIT, note):
        decode(decoder, frame)
    terminal = decode(decoder, DONE).terminal
    assert terminal is not None and terminal.follow_up is own
    decode(decoder, INIT)
    terminal = decode(decoder, DONE).terminal
    assert terminal is not None and not terminal.follow_up


def test_an_interrupt_is_a_request_and_its_end_is_no_failure_of_the_model() -> None:
    decoder = QwenDecoder(Carried(usage=NO_USAGE), LIVE)
    assert '"subtype": "interrupt"' in (decoder.interrupt() or "")
    terminal = of("live_interrupt").terminal()
    assert terminal.interrupted and terminal.error is not None and terminal.error.kind == "cancelled"
