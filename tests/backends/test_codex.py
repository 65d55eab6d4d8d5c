"""codex: how it is started, what is said to it, and what its lines become. Frames come from recordings of codex 0.169.0."""

from __future__ import annotations

import fnmatch
import json
import random
import tomllib
from dataclasses import replace
from typing import Any

import pytest

from clisup.backends.base import END_OF_INPUT, Carried, Decoded, Decoder, LaunchRequest, RunEnd
from clisup.backends.codex.adapter import CodexAdapter
from clisup.backends.codex.errors import CodexFailure, explain_report
from clisup.backends.codex.exec import CodexExecAdapter
from clisup.backends.codex.protocol import THREAD
from clisup.errors import UsageError
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.usage import NO_USAGE, Usage
from tests.backends.recorded import RECORDINGS, Recording
from tests.fuzz.mutate import Mutator, Seed
from tests.journals import encode_event

ID = "01a20048-7d52-7370-ae77-e76ec03cf52b"
ASKED = LaunchRequest(
    command=("codex",), prompt="a secret prompt", native_session_id=None, resume=False, cwd="/work/a b"
)
AGAIN = replace(ASKED, native_session_id=ID, resume=True)
SERVERS = {
    "web": {"type": "http", "url": "http://host/mcp", "headers": {"Authorization": "s3cret"}},
    "own": {"command": "x"},
}
server, one_shot = CodexAdapter(), CodexExecAdapter()
BOTH = pytest.mark.parametrize("adapter", [server, one_shot], ids=lambda adapter: adapter.kind)
Adapters = CodexAdapter | CodexExecAdapter


def line(frame: Any) -> Line:
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    return Line(0, len(data) + 1, data)


def said(decoded: Decoded) -> dict[str, Any]:
    """The one reply, as the frame that it is."""
    (reply,) = decoded.replies
    assert isinstance(reply, str) and reply.endswith("\n")
    return dict(json.loads(reply))


def opened(request: LaunchRequest) -> Decoder:
    """A decoder whose thread and turn have begun."""
    decoder = server.decoder(Carried(), request)
    decoder.decode(line({"id": 1, "result": {}}))
    decoder.decode(line({"id": 2, "result": {"thread": {"id": ID}}}))
    decoder.decode(line({"id": 3, "result": {"turn": {"id": "turn-1"}}}))
    return decoder


def settings(argv: tuple[str, ...]) -> dict[str, Any]:
    """The `-c` overrides as the TOML that codex reads."""
    pairs = [argv[at + 1] for at, word in enumerate(argv) if word == "-c"]
    return tomllib.loads("\n".join(pairs))


# Launch


@BOTH
def test_neither_prompt_nor_secret_nor_server_stands_in_argv(adapter: Adapters) -> None:
    spec = adapter.launch(ASKED)
    assert "a secret prompt" not in " ".join(spec.argv)


def test_a_system_prompt_and_servers_go_through_the_dialogue_of_app_server() -> None:
    request = replace(ASKED, system_prompt="Be brief.", mcp_servers=SERVERS)
    assert "brief" not in " ".join(server.launch(request).argv) + server.launch(request).stdin
    params = said(server.decoder(Carried(), request).decode(line({"id": 1, "result": {}})))["params"]
    assert params["developerInstructions"] == "Be brief."
    assert params["config"]["mcp_servers"] == {
        "web": {"url": "http://host/mcp", "http_headers": {"Authorization": "s3cret"}},
        "own": {"command": "x"},
    }


@pytest.mark.parametrize("more", [{"system_prompt": "x"}, {"mcp_servers": SERVERS}])
def test_what_exec_takes_in_argv_alone_is_unsupported(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        one_shot.launch(replace(ASKED, **more))
    assert refused.value.kind == "unsupported"


@BOTH
@pytest.mark.parametrize(
    "wrong",
    [
        {"prompt": " "},
        {"prompt": "a\x00b"},
        {"prompt": "\ud800"},
        {"permission_mode": "--yolo"},
        {"model": " "},
        {"setting_sources": "project"},
        {"setting_sources": "user,local"},
        {"native_session_id": "my-thread", "resume": True},
        {"resume": True},
    ],
)
def test_what_codex_cannot_take_is_refused_before_the_start(adapter: Adapters, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        adapter.launch(replace(ASKED, **wrong))


def test_a_server_that_codex_cannot_reach_is_refused_before_the_start() -> None:
    with pytest.raises(UsageError) as refused:
        server.launch(replace(ASKED, mcp_servers={"old": {"type": "sse", "url": "http://host"}}))
    assert refused.value.kind == "unsupported"


@BOTH
def test_tools_get_no_credentials_and_nothing_is_left_behind(adapter: Adapters) -> None:
    told = settings(adapter.launch(ASKED).argv)
    assert told["shell_environment_policy"] == {"ignore_default_excludes": False}
    assert told["features"]["shell_snapshot"] is False
    assert told["features"]["unbounded_connection_retries"] is False


def test_the_backend_s_own_arguments_come_after_ours_so_that_they_win() -> None:
    argv = server.launch(replace(ASKED, args=("-c", "features.apps=true"))).argv
    assert argv.index("features.apps=true") > argv.index("features.apps=false")


@pytest.mark.parametrize("request_", [ASKED, AGAIN])
def test_the_sandbox_is_always_named(request_: LaunchRequest) -> None:
    """codex itself gives a writing one to a directory that is marked as untrusted."""
    params = said(server.decoder(Carried(), request_).decode(line({"id": 1, "result": {}})))["params"]
    assert params["sandbox"] == settings(one_shot.launch(request_).argv)["sandbox_mode"] == "read-only"


def test_exec_takes_odd_values_as_toml_and_not_as_flags() -> None:
    odd = replace(AGAIN, model='--x"\\\x7f\u00e9\U0001f600', permission_mode="read-only", cwd='/a "b"\\c')
    spec = one_shot.launch(odd)
    told = settings(spec.argv)
    assert told["model"] == odd.model and told["sandbox_mode"] == "read-only"
    assert told["projects"] == {path: {"trust_level": "untrusted"} for path in ('/a "b"\\c', "/")}
    assert spec.argv[1:3] == ("exec", "resume") and spec.argv[-2:] == (ID, "-")
    assert spec.stdin == odd.prompt and spec.stdin_eof


@pytest.mark.parametrize(
    ("sources", "trust"),
    [
        ("user", {"/work/a b": "untrusted", "/work": "untrusted", "/": "untrusted"}),
        ("user,project", {"/work/a b": "trusted"}),
        (None, {}),
    ],
)
def test_the_directory_and_all_above_it_count_only_where_the_project_is_a_setting_source(
    sources: str | None, trust: dict[str, str]
) -> None:
    request = replace(ASKED, setting_sources=sources)
    params = said(server.decoder(Carried(), request).decode(line({"id": 1, "result": {}})))["params"]
    told = params.get("config", {}).get("projects", {})
    assert {path: level["trust_level"] for path, level in told.items()} == trust
    assert settings(one_shot.launch(request).argv).get("projects", {}) == told


@pytest.mark.parametrize(
    ("launcher", "binary"),
    [
        (
            "/usr/lib/node_modules/@openai/codex/bin/codex.js",
            "/usr/lib/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        ),
        (
            "/opt/n [1]/@openai/codex/bin/codex.js",
            "/opt/n [1]/@openai/codex/node_modules/@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex",
        ),
    ],
)
def test_npm_s_launcher_has_a_worker(launcher: str, binary: str) -> None:
    assert any(fnmatch.fnmatchcase(binary, glob) for (glob,) in server.workers(launcher))


def test_a_native_binary_is_its_own_worker() -> None:
    assert server.workers("/usr/local/bin/codex") == ()


def test_the_version_is_the_one_word_after_the_name() -> None:
    assert server.parse_version("codex-cli 0.169.0\n") == "0.169.0"
    assert server.parse_version("WARNING: no version here\n") is None


def test_the_transcript_lies_under_codex_s_home() -> None:
    assert server.transcript_pattern(ID, {"HOME": "/h"}) == f"/h/.codex/sessions/*/*/*/rollout-*-{ID}.jsonl"
    assert server.transcript_pattern(ID, {"CODEX_HOME": "/c[1]/"}) == f"/c[[]1]/sessions/*/*/*/rollout-*-{ID}.jsonl"
    assert server.transcript_pattern("../x", {"HOME": "/h"}) is None
    assert server.transcript_pattern(ID, {}) is None


def test_the_transcript_tells_whether_the_prompt_was_taken_and_answered() -> None:
    def entry(role: str, text: str) -> bytes:
        message = {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        return json.dumps({"type": "response_item", "payload": message}).encode() + b"\n"

    asked, answered = entry("user", "hi"), entry("assistant", "hello")
    assert server.transcript_says(b"", "hi") == "prompt_not_found"
    assert server.transcript_says(entry("developer", "hi") + answered, "hi") == "prompt_not_found"
    assert server.transcript_says(asked + b'{"type":"respo', "hi") == "prompt_found"
    assert server.transcript_says(answered + asked + answered, "hi") == "answered"


# The dialogue


def test_the_dialogue_opens_a_thread_asks_and_hangs_up() -> None:
    recording = Recording.of("codex/text")
    replies = [reply for one in recording.decode() for reply in one.replies]
    methods = [json.loads(reply)["method"] for reply in replies[:-1] if isinstance(reply, str)]
    assert methods == ["thread/start", "turn/start"] and replies[-1] is END_OF_INPUT
    assert json.loads(str(replies[1]))["params"]["input"][0]["text"] == recording.meta["prompt"]


def test_the_same_lines_get_the_same_replies() -> None:
    recording = Recording.of("codex/resume_again")
    assert [one.replies for one in recording.decode()] == [one.replies for one in recording.decode()]


def test_a_resume_names_the_thread_and_asks_for_no_history() -> None:
    asked = said(server.decoder(Carried(), AGAIN).decode(line({"id": 1, "result": {}})))
    assert asked["method"] == "thread/resume"
    assert asked["params"]["threadId"] == ID and asked["params"]["excludeTurns"] is True


def test_an_interrupt_can_be_asked_for_once_the_turn_is_known() -> None:
    assert server.decoder(Carried(), ASKED).interrupt() is None
    asked = json.loads(opened(ASKED).interrupt() or "")
    assert asked["method"] == "turn/interrupt"
    assert asked["params"] == {"threadId": ID, "turnId": "turn-1"}
    assert one_shot.decoder(Carried(), ASKED).interrupt() is None


@pytest.mark.parametrize("live", [True, False])
def test_an_interrupt_of_a_live_turn_names_its_running_commands_because_codex_lets_them_go_on(live: bool) -> None:
    recording = Recording.of("codex/tool_interrupt")
    decoder = server.decoder(Carried(), replace(recording.request, live=live))
    names: list[set[str]] = []
    for each in recording.lines():
        decoder.decode(each)
        asked = [json.loads(text) for text in (decoder.interrupt() or "").splitlines()]
        ends = [frame for frame in asked if frame["method"] == "thread/backgroundTerminals/terminate"]
        names.append({frame["params"]["processId"] for frame in ends})
        for frame in ends:
            assert decoder.decode(line({"id": frame["id"], "result": {"terminated": True}})).replies == ()
            assert decoder.decode(line({"id": frame["id"], "error": {"message": "gone"}})).terminal is None
    started = {
        frame["params"]["item"]["processId"]
        for frame in map(json.loads, (each.data for each in recording.lines()))
        if frame.get("method") == "item/started" and frame["params"]["item"]["type"] == "commandExecution"
    }
    assert len(started) == 1 and max(names, key=len) == (started if live else set())


NEXT = replace(AGAIN, live=True, later=True, prompt="More of $it.", prompt_id="p-2")


def test_a_live_process_gets_its_next_prompt_under_an_id_of_its_own() -> None:
    asked = json.loads(server.launch(NEXT).stdin)
    assert (asked["id"], asked["method"], asked["params"]["threadId"]) == ("3-p-2", "turn/start", ID)
    assert asked["params"]["input"][0]["text"] == "More of $\u200bit."  # no skill can be switched off for one turn
    schema = {"type": "object", "properties": {}}
    assert "outputSchema" in json.loads(server.launch(replace(NEXT, output_schema=schema)).stdin)["params"]
    with pytest.raises(UsageError):
        server.launch(replace(NEXT, prompt=" "))


def test_a_later_turn_of_a_live_process_is_told_as_the_first_is() -> None:
    """The lines of a recorded turn from the answer to turn/start on, with the id of the later request."""
    recording = Recording.of("codex/tool_ok")
    lines = recording.lines()
    at = next(n for n, each in enumerate(lines) if json.loads(each.data).get("id") == 3)
    thread = next(
        json.loads(each.data)["result"]["thread"]["id"] for each in lines if json.loads(each.data).get("id") == 2
    )
    later = server.decoder(Carried(), replace(NEXT, native_session_id=thread))
    begun = later.decode(line({**json.loads(lines[at].data), "id": "3-p-2"}))
    assert begun.events == () and json.loads(later.interrupt() or "")["params"]["threadId"] == thread
    told = [later.decode(each) for each in lines[at + 1 :]]
    first = recording.decode()[at + 1 :]
    kinds = [[type(event) for event in one.events] for one in told]
    assert kinds == [[type(event) for event in one.events] for one in first] and any(kinds)
    (end,) = [one for one in told if one.terminal]
    assert end.replies == () and end.terminal is not None and end.terminal.text == "done"


def test_a_refused_prompt_ends_the_turn_of_a_live_process() -> None:
    refused = {"id": "3-p-2", "error": {"code": -32600, "message": "thread not found"}}
    decoded = server.decoder(Carried(), NEXT).decode(line(refused))
    assert decoded.terminal is not None and decoded.terminal.is_error and decoded.replies == ()
    late = {"id": 4, "error": {"code": -32600, "message": "no turn to interrupt"}}
    assert server.decoder(Carried(), NEXT).decode(line(late)).terminal is None


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("mcpServer/elicitation/request", {"action": "decline", "content": None, "_meta": None}),
        ("item/tool/requestUserInput", {"answers": {}}),
        ("item/tool/call", {"contentItems": [], "success": False}),
    ],
)
def test_a_request_after_the_end_of_the_turn_is_declined_at_once(method: str, answer: dict[str, Any]) -> None:
    asked = {"id": 0, "method": method, "params": {"threadId": ID, "itemId": "call_1", "reason": "want"}}
    decoder = opened(ASKED)
    decoder.decode(line({"method": "turn/completed", "params": {"threadId": ID, "turn": {"status": "completed"}}}))
    decoded = decoder.decode(line(asked))
    assert said(decoded) == {"id": 0, "result": answer}
    assert [event.type for event in decoded.events] == ["permission_denied"]


def test_a_request_that_nobody_knows_gets_an_error_and_not_silence() -> None:
    decoded = opened(ASKED).decode(line({"id": "x", "method": "from/theFuture", "params": {}}))
    assert said(decoded)["error"]["code"] == -32601


# What lines become


def test_usage_is_of_this_turn_and_without_cached_tokens() -> None:
    usage = Recording.of("codex/resume_again").terminal().usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (700, 301, 41)


def test_a_subagent_s_tokens_count_and_its_end_is_not_the_turn_s() -> None:
    decoder = opened(ASKED)
    counts = {"inputTokens": 10, "cachedInputTokens": 4, "outputTokens": 3, "totalTokens": 13}
    for thread, turn in (("other", "turn-9"), (ID, "turn-1"), (ID, "the turn before")):
        params = {"threadId": thread, "turnId": turn, "tokenUsage": {"last": counts}}
        decoder.decode(line({"method": "thread/tokenUsage/updated", "params": params}))
    ended = {"turn": {"id": "turn-9", "status": "completed"}}
    assert decoder.decode(line({"method": "turn/completed", "params": {"threadId": "other", **ended}})).terminal is None
    last = decoder.decode(line({"method": "turn/completed", "params": {"threadId": ID, **ended}})).terminal
    assert last is not None and last.usage.input_tokens == 12 and last.usage.output_tokens == 6


def test_the_turn_s_share_of_exec_s_running_total() -> None:
    recording = Recording.of("codex-exec/resume_again")
    terminal = recording.terminal()
    assert recording.carried.usage is not None and recording.carried.usage.output_tokens == 40
    assert terminal.usage.output_tokens == 41
    assert terminal.usage_total is not None and terminal.usage_total.output_tokens == 81


def test_exec_s_share_of_an_unknown_total_is_unknown() -> None:
    decoder = one_shot.decoder(Carried(usage=None), ASKED)
    end = decoder.decode(line({"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 1}})).terminal
    assert end is not None and end.usage == Usage() and end.usage_total is not None


def test_text_of_a_message_that_was_whole_before_the_cut_stays() -> None:
    """codex shows it to the model in the next request; only a message cut in its middle is asked for again."""
    recording = Recording.of("codex/cut_after_message")
    assert [event.blocks[0].text for event in recording.events("message")] == ["partial", "The rest."]
    assert not recording.events("retracted")
    assert Recording.of("codex/cut").events("retracted")


def test_an_interrupted_turn_keeps_what_was_shown() -> None:
    recording = Recording.of("codex/stall_interrupt")
    assert [event.blocks[0].text for event in recording.events("message")] == ["part"]
    assert recording.terminal().interrupted


def test_a_command_that_still_runs_gets_no_invented_result() -> None:
    for kind in ("codex", "codex-exec"):
        recording = Recording.of(f"{kind}/tool_running_at_end")
        assert len(recording.events("tool_use")) == 1 and not recording.events("tool_result")


def test_a_top_level_error_of_exec_is_no_end() -> None:
    decoded = Recording.of("codex-exec/cut").decode()
    assert [one.terminal.text for one in decoded if one.terminal] == ["The whole answer."]


def test_rate_limits_are_told_when_they_change() -> None:
    told = [(e.limit_type, e.utilization) for e in Recording.of("codex/rate_limits").events("rate_limit")]
    assert told == [("primary", 0.42), ("secondary", 0.21), ("primary", 0.43), ("secondary", 0.22)]


ERRORS = {
    "http_400": ("invalid_request", None, False),
    "http_401": ("authentication", 401, False),
    "http_403": ("permission", 403, False),
    "http_404": ("model_not_found", None, False),
    "http_413": ("context_overflow", 413, False),
    "http_429": ("rate_limit", 429, True),
    "http_400_prompt": ("invalid_request", None, False),
    "invalid_prompt": ("invalid_request", None, False),
    "no_plan": ("quota_exceeded", None, False),
    "no_quota": ("quota_exceeded", None, False),
    "http_500": ("server", None, True),
    "http_503": ("overloaded", None, True),
    "overflow": ("context_overflow", None, False),
    "max_tokens": ("output_limit", None, False),
    "content_filter": ("refusal", None, False),
    "cut_for_good": ("network", None, True),
    "connection_refused": ("network", None, True),
    "no_key": ("authentication", None, False),
}


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
@pytest.mark.parametrize("name", ERRORS)
def test_both_ways_tell_the_same_kind_of_error(kind: str, name: str) -> None:
    """exec has sentences alone; app-server's codes must not say anything else."""
    error = Recording.of(f"{kind}/{name}").terminal().error
    assert error is not None and (error.kind, error.http_status, error.retryable) == ERRORS[name]


@pytest.mark.parametrize("kind", ["codex", "codex-exec"])
def test_a_refused_request_is_told_in_the_words_of_the_api_and_not_as_its_json(kind: str) -> None:
    error = Recording.of(f"{kind}/http_400").terminal().error
    assert error is not None and error.message == "bad thing"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n  "error": {\n    "message": "Unsupported value"\n  }\n}', "Unsupported value"),
        ('{"detail":"The model is not supported."}', "The model is not supported."),
        ('{"error":{"message":""}}', '{"error":{"message":""}}'),
        ('{"error":', '{"error":'),
        ('{"error":[1]}', '{"error":[1]}'),
        ("[" * 100_000, "[" * 4096),
    ],
)
def test_the_words_of_a_refusal_are_found_in_json_alone(text: str, words: str) -> None:
    assert explain_report(CodexFailure(text)).message == words


def test_a_usage_limit_can_be_tried_again_when_app_server_says_when() -> None:
    error = Recording.of("codex/usage_limit").terminal().error
    assert error is not None and error.resets_at == "2100-01-01T00:00:00Z" and error.retryable
    error = Recording.of("codex-exec/usage_limit").terminal().error
    assert error is not None and error.kind == "quota_exceeded" and error.resets_at is None


def test_a_limit_in_the_stream_says_how_long_to_wait() -> None:
    (retry,) = Recording.of("codex/stream_rate_limit").events("retry")
    assert (retry.attempt, retry.max_attempts) == (1, 1)
    assert retry.error.kind == "rate_limit" and retry.error.retry_after_s == 0.2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("codex/bad_setting", "invalid_request"),
        ("codex-exec/bad_setting", "invalid_request"),
        ("codex-exec/unknown_session", "session_not_found"),
        ("codex-exec/stall_sigint", "crashed"),
    ],
)
def test_an_end_without_a_last_word_is_explained(name: str, kind: str) -> None:
    recording = Recording.of(name)
    assert recording.adapter.explain_exit(recording.run_end).kind == kind


def test_an_unknown_thread_can_be_begun_anew() -> None:
    error = Recording.of("codex/unknown_session").terminal().error
    assert error is not None and server.recovery(error) == "fresh"
    assert one_shot.recovery(RunEnd(1, None, "Error: no rollout found for thread id x")) == "fresh"
    assert one_shot.recovery(RunEnd(1, None, "Error: something else")) is None


WRITER = "thread 01a21537-e256-7fd2-a5fd-57e402ded36b already has an active writer"
"""Message of codex 0.169.0 while another codex has the thread open."""


def test_a_thread_that_another_codex_has_open_is_busy() -> None:
    refusal = {"id": THREAD, "error": {"code": -32600, "message": WRITER}}
    terminal = server.decoder(Carried(), AGAIN).decode(line(refusal)).terminal
    assert terminal is not None and terminal.error is not None
    words = f"thread/resume: thread/resume failed: {WRITER} (code -32600)"
    for error in (terminal.error, one_shot.explain_exit(RunEnd(1, None, f"Error: {words}\n"))):
        assert (error.kind, error.retryable) == ("session_busy", True)
        assert WRITER in error.message and "another codex has this conversation open" in error.message


# Hostile bytes

ODD: list[Any] = [
    b"\xff\xfe", b"{", b"null", b"[]", b"{}", b"9" * 5000, b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300,
    {"method": 7}, {"method": "item/started"}, {"method": "item/started", "params": {"item": {"type": []}}},
    {"method": "item/completed", "params": {"threadId": ID, "item": {"type": "commandExecution"}}},
    {"method": "item/completed", "params": {"item": {"type": "commandExecution", "id": "x", "exitCode": 10**400}}},
    {"method": "item/completed", "params": {"item": {"type": "mcpToolCall", "id": "x", "result": {"content": [1, {}]}}}},
    {"method": "item/agentMessage/delta", "params": {"itemId": "m", "delta": 5}},
    {"method": "thread/tokenUsage/updated", "params": {"tokenUsage": []}}, {"method": "turn/completed", "params": {"turn": 1}},
    {"method": "account/rateLimits/updated", "params": {"rateLimits": {"primary": {"usedPercent": 1, "resetsAt": 1e300}}}},
    {"method": "error", "params": {"error": {"codexErrorInfo": {"a": {"b": 1}}}, "willRetry": "yes"}},
    {"id": None, "method": "x"}, {"id": [1], "method": "x"}, {"id": 2, "result": {"thread": {"id": 5}}}, {"id": 1, "error": 5},
    {"type": "item.completed"}, {"type": "item.completed", "item": {"type": "agent_message", "text": "no id"}},
    {"type": "turn.completed", "usage": {"input_tokens": "many"}}, {"type": "turn.failed", "error": []}, {"type": "error"},
    {"type": "item.updated", "item": {"id": "t", "type": "todo_list", "items": [1, {"text": 5}]}},
    {"type": "item.completed", "item": {"id": "c", "type": "collab_tool_call", "agents_states": {"a": 1}, "tool": 5}},
]  # fmt: skip


def check(decoded: Decoded) -> None:
    """Events can be written, replies are whole lines of JSON."""
    for event in decoded.events:
        encode_event(event, session_id="s", seq=1, ts="t", turn_id=None, source="backend")
    for reply in decoded.replies:
        if isinstance(reply, str):
            assert reply.endswith("\n") and all(isinstance(json.loads(one), dict) for one in reply.splitlines())


@BOTH
def test_odd_lines_raise_nothing(adapter: Adapters) -> None:
    for begin in (adapter.decoder(Carried(usage=NO_USAGE), ASKED), opened(ASKED)):
        for odd in ODD:
            check(begin.decode(line(odd)))


@BOTH
def test_spoiled_recordings_raise_nothing_and_end_once(adapter: Adapters) -> None:
    talks = [path.read_bytes().splitlines() for path in sorted((RECORDINGS / adapter.kind).glob("*/*.jsonl"))]
    talks = [talk for talk in talks if talk]
    rng = random.Random(7)
    mutator = Mutator([Seed(one) for talk in talks for one in talk], rng)
    for _ in range(300):
        decoder, ends = adapter.decoder(Carried(usage=NO_USAGE), ASKED), 0
        for one in rng.choice(talks):
            spoiled = mutator.mutate(Seed(one)) if rng.random() < 0.2 else one
            for found in LineFramer().feed(spoiled + b"\n"):
                decoded = decoder.decode(found)
                check(decoded)
                ends += decoded.terminal is not None
        assert ends <= 1


@BOTH
def test_unknown_frames_are_kept_as_such(adapter: Adapters) -> None:
    decoder = adapter.decoder(Carried(usage=NO_USAGE), ASKED)
    for frame in ({"method": "from/theFuture", "params": {}}, {"type": "from.the.future"}):
        (event,) = decoder.decode(line(frame)).events
        assert event.type == "unparsed"
    reasons = [getattr(decoder.decode(line(data)).events[0], "reason", None) for data in (b"{", b"[]")]
    assert reasons == ["malformed", "malformed"]
    assert getattr(decoder.decode(Line(0, 9, b'{"a', complete=False)).events[0], "reason", None) == "truncated"
    assert getattr(decoder.decode(Line(0, 9**9, b'{"a', oversize=True)).events[0], "reason", None) == "oversize"
