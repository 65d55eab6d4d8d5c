"""The ACP adapter: what it says, what it makes of an agent's words, and that nothing an agent says can break it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.acp.dialogue import AcpDecoder
from clisup.backends.acp.updates import TERMINAL_CHARS
from clisup.backends.base import END_OF_INPUT, ApprovalAnswer, Carried, Decoded, LaunchRequest, RunEnd
from clisup.errors import UsageError
from clisup.model.events import BackendStatus, TurnError
from clisup.model.lines.framing import Line
from clisup.model.usage import NO_USAGE
from clisup.model.verdict import ExitRecord, conclude

MODES = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "yolo", "name": "YOLO"}]}


def request(**changes: Any) -> LaunchRequest:
    plain: dict[str, Any] = {"prompt": "hello", "native_session_id": None, "resume": False, "cwd": "/w"}
    return LaunchRequest(command=("agent", "--acp"), **{**plain, **changes})


def line(frame: Any) -> Line:
    data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    return Line(0, len(data) + 1, data)


class Conversation:
    """A decoder, and the agent's side of the talk: `answer` answers what was asked last."""

    def __init__(self, carried: Carried | None = None, **changes: Any) -> None:
        self.adapter = AcpAdapter()
        self.decoder: AcpDecoder = self.adapter.decoder(carried or Carried(0.0, NO_USAGE), request(**changes))
        self.asked: dict[str, Any] = json.loads(self.adapter.launch(request(**changes)).stdin)
        self.last = Decoded(())

    def hear(self, frame: Any) -> Decoded:
        self.last = self.decoder.decode(line(frame))
        for reply in self.last.replies:
            if isinstance(reply, str) and "method" in (said := json.loads(reply)):
                self.asked = said
        return self.last

    def answer(self, result: Any) -> Decoded:
        """Answer the last request, and then the round trip behind the end of an answer."""
        answered = self.hear({"jsonrpc": "2.0", "id": self.asked["id"], "result": result})
        return self.refuse() if self.decoder.open_work.ended else answered

    def refuse(self) -> Decoded:
        return self.hear(
            {"jsonrpc": "2.0", "id": self.asked["id"], "error": {"code": -32601, "message": "no such method"}}
        )

    def fail(self, code: int, message: str, data: Any = None) -> TurnError:
        error = {"code": code, "message": message, "data": data}
        terminal = self.hear({"jsonrpc": "2.0", "id": self.asked["id"], "error": error}).terminal
        assert terminal is not None and terminal.error is not None
        return terminal.error

    def update(self, update_kind: str, /, **fields: Any) -> list[Any]:
        update = {"sessionUpdate": update_kind, **fields}
        params = {"sessionId": self.decoder.state.session or "s", "update": update}
        return list(self.hear({"method": "session/update", "params": params}).events)

    def say(self, text: str, **fields: Any) -> list[Any]:
        return self.update("agent_message_chunk", content={"type": "text", "text": text}, **fields)

    def open(self, opened: dict[str, Any] | None = None, **can: Any) -> Conversation:
        self.answer({"protocolVersion": 1, "agentCapabilities": can, "agentInfo": {"name": "a", "version": "9"}})
        self.answer({"sessionId": "s", **(opened or {})})
        return self


def prompted(**changes: Any) -> Conversation:
    talk = Conversation(**changes).open()
    assert talk.asked["method"] == "session/prompt"
    return talk


# What is said


def test_the_first_words_are_initialize_with_elicitations_alone_offered() -> None:
    spec = AcpAdapter().launch(request(args=("--flag",)))
    said = json.loads(spec.stdin)
    assert (spec.argv, spec.stdin_eof, spec.env) == (("agent", "--acp", "--flag"), False, {})
    assert (said["id"], said["method"], said["params"]["protocolVersion"]) == (0, "initialize", 1)
    nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    assert said["params"]["clientCapabilities"] == {**nothing, "elicitation": {"form": {}, "url": {}}}


def test_requests_are_numbered_in_the_order_said_and_the_end_of_input_comes_last() -> None:
    talk, asked = Conversation(model="m", permission_mode="yolo"), []
    models = {"currentModelId": "a", "availableModels": [{"modelId": "m", "name": "M"}]}
    for result in ({"protocolVersion": 1}, {"sessionId": "s", "modes": MODES, "models": models}, {}, None):
        talk.answer(result)
        asked.append((talk.asked["id"], talk.asked["method"]))
    assert asked == [(1, "session/new"), (2, "session/set_model"), (3, "session/set_mode"), (4, "session/prompt")]
    assert talk.asked["params"] == {"sessionId": "s", "prompt": [{"type": "text", "text": "hello"}]}
    assert talk.answer({"stopReason": "end_turn"}).replies == (END_OF_INPUT,)


def test_a_mode_or_model_that_is_in_force_already_is_not_set_again() -> None:
    assert Conversation(permission_mode="ask").open({"modes": MODES}).asked["method"] == "session/prompt"


@pytest.mark.parametrize(
    ("can", "method"),
    [
        ({"loadSession": True}, "session/load"),
        ({"loadSession": True, "sessionCapabilities": {"resume": {}}}, "session/resume"),
    ],
)
def test_a_session_is_resumed_the_way_that_tells_least(can: dict[str, Any], method: str) -> None:
    talk = Conversation(native_session_id="old", resume=True)
    talk.answer({"protocolVersion": 1, "agentCapabilities": can})
    assert (talk.asked["method"], talk.asked["params"]["sessionId"]) == (method, "old")


def test_what_is_replayed_behind_the_answer_to_load_gives_no_event_and_the_prompt_waits_for_its_end() -> None:
    talk = Conversation(native_session_id="old", resume=True).open(loadSession=True)
    assert talk.asked["method"] == "_clisup/quiet"
    assert talk.say("an old answer") == talk.update("tool_call", toolCallId="t", status="completed") == []
    talk.refuse()
    assert talk.asked["method"] == "_clisup/quiet"  # something old came meanwhile, so once more
    talk.answer(None)
    assert talk.asked["method"] == "session/prompt"


def test_a_message_between_the_mode_and_the_prompt_is_no_answer_to_the_prompt() -> None:
    talk = Conversation(permission_mode="yolo").open({"modes": MODES})
    assert talk.say("[MODE_UPDATE] yolo") == []
    talk.answer({})
    assert talk.asked["method"] == "session/prompt"


def test_an_interrupt_is_a_notification_and_only_said_while_the_prompt_runs() -> None:
    talk = Conversation()
    assert talk.decoder.interrupt() is None
    talk.open()
    said = json.loads(talk.decoder.interrupt() or "")
    assert said == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}
    talk.answer({"stopReason": "cancelled"})
    assert talk.decoder.interrupt() is None


def test_a_turn_that_the_agent_cancels_by_itself_has_failed() -> None:
    terminal = prompted().answer({"stopReason": "cancelled"}).terminal
    assert terminal is not None and terminal.unasked is not None
    nobody: dict[str, Any] = {
        "record": ExitRecord(0, reason="exit"),
        "explained": TurnError("crashed", ""),
        "duration_s": 1.0,
    }
    done = conclude(terminal=terminal, ending=None, **nobody)
    assert (done.outcome, done.error and done.error.kind) == ("failed", "server")
    asked = conclude(terminal=terminal, ending={"reason": "client", "told": "part"}, **nobody)
    assert (asked.outcome, asked.error and asked.error.kind) == ("interrupted", "cancelled")


def test_a_version_of_another_shape_is_quoted() -> None:
    terminal = Conversation().answer({"protocolVersion": "1"}).terminal
    assert terminal is not None and terminal.error is not None
    assert 'speaks version "1"' in terminal.error.message


LATER: dict[str, Any] = {"native_session_id": "s", "resume": True, "live": True, "later": True, "prompt_id": "p-2"}


def later(agent: str | None = None) -> Conversation:
    """A later turn of a live process, whose prompt was sent."""
    made = Conversation(Carried(0.0, NO_USAGE, agent=agent), **LATER)
    made.asked = json.loads(made.adapter.launch(request(**LATER)).stdin)
    return made


def test_a_live_process_gets_its_next_prompt_under_an_id_of_its_own() -> None:
    talk = later()
    assert (talk.asked["id"], talk.asked["method"]) == ("prompt-p-2", "session/prompt")
    assert talk.asked["params"] == {"sessionId": "s", "prompt": [{"type": "text", "text": "hello"}]}
    assert json.loads(talk.decoder.interrupt() or "")["method"] == "session/cancel"
    assert talk.say("Well.") and talk.last.terminal is None
    ended = talk.answer({"stopReason": "end_turn"})
    assert ended.terminal is not None and ended.terminal.text == "Well." and ended.replies == ()


def test_words_of_a_live_process_that_rests_are_no_turn() -> None:
    talk = Conversation(native_session_id="s", resume=True, live=True)
    assert talk.say("Late.") == [BackendStatus(status="late_update", detail="agent_message_chunk: Late.")]
    assert talk.update("tool_call", toolCallId="t", title="Look")[0].detail == "tool_call: Look"
    assert talk.decoder.interrupt() is None


def test_the_habits_of_the_agent_hold_in_later_turns_too() -> None:
    talk = later("copilot")
    talk.say("Error: 401 no key")
    ended = talk.answer({"stopReason": "end_turn"}).terminal
    assert ended is not None and ended.is_error
    other = later("another")
    other.say("Error: 401 no key")
    assert not (other.answer({"stopReason": "end_turn"}).terminal or ended).is_error


@pytest.mark.parametrize("prompt", ["/help", " \t/help", "\ufeff/help"])
def test_a_prompt_is_no_command_unless_the_caller_wants_it(prompt: str) -> None:
    spec = AcpAdapter().launch(request(prompt=prompt))
    assert AcpAdapter().prompt(request(prompt=prompt))[0] == ("\u200b" + prompt,)
    assert spec.prompt_altered == "zero-width space before a leading command character"
    assert AcpAdapter().prompt(request(prompt=prompt, expand=True)) == ((prompt,), None)


@pytest.mark.parametrize("prompt", ["", " \n", "a\x00b", "half \ud83d"])
def test_what_is_no_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(UsageError):
        AcpAdapter().launch(request(prompt=prompt))


def test_mcp_servers_become_a_list_of_acps() -> None:
    servers = {
        "run": {"command": "/bin/x", "args": ["-v"], "env": {"A": "1"}},
        "web": {"type": "http", "url": "http://x", "headers": {"H": "v"}},
    }
    talk = Conversation(mcp_servers=servers)
    talk.answer({"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}})
    assert talk.asked["params"]["mcpServers"] == [
        {"name": "run", "command": "/bin/x", "args": ["-v"], "env": [{"name": "A", "value": "1"}]},
        {"type": "http", "name": "web", "url": "http://x", "headers": [{"name": "H", "value": "v"}]},
    ]
    with pytest.raises(UsageError):
        AcpAdapter().launch(request(mcp_servers={"odd": {"url": "ftp://x"}}))


# What it makes of the agent's words


def test_an_own_message_id_begins_a_new_message() -> None:
    talk = prompted()
    talk.say("one", messageId="m1")
    told = [event.type for event in talk.say("two", messageId="m2")]
    assert told == ["message", "message_stop", "message_start", "content_delta"]


def test_a_request_whose_tokens_are_told_has_ended_its_message_and_a_turns_usage_is_the_sum() -> None:
    talk, told = prompted(), {"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}}
    talk.say("one")
    assert [event.type for event in talk.say("", _meta=told)] == ["message", "message_stop"]
    talk.say("two")
    (_, stop) = talk.say("", _meta=told)
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert (terminal.text, stop.usage.output_tokens, terminal.usage.output_tokens) == ("two", 5, 10)


def test_a_note_of_the_agents_own_is_synthetic_and_no_part_of_the_answer() -> None:
    talk = prompted()
    talk.say("Answer.")
    *_, note, stop = talk.say("A background agent completed.", _meta={"qwenDiscreteMessage": True})
    assert (note.synthetic, note.message_id) == (True, stop.message_id)
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert terminal.text == "Answer."


def test_a_character_cut_between_two_chunks_is_put_together() -> None:
    talk = prompted()
    frames = [b'{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk",'
              b'"content":{"type":"text","text":"%s"}}}}' % half for half in (rb"a\ud83d", rb"\ude00b")]  # fmt: skip
    deltas = [event.text for frame in frames for event in talk.hear(frame).events if event.type == "content_delta"]
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert ("".join(deltas), terminal.text) == ("a\U0001f600b", "a\U0001f600b")


def test_the_final_text_is_what_was_said_after_the_last_tool() -> None:
    talk = prompted()
    talk.say("I look.")
    talk.update("tool_call", toolCallId="t", title="Look", status="in_progress")
    talk.update("tool_call_update", toolCallId="t", status="completed", rawOutput={"found": 1})
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert terminal.text == ""


def test_a_tool_with_one_single_update_is_told_whole() -> None:
    use, result = prompted().update(
        "tool_call", toolCallId="t", title="Look", kind="search", status="failed", rawOutput="nothing there"
    )
    assert (use.name, use.input) == ("search", {"title": "Look"})
    assert (result.content, result.is_error) == ("nothing there", True)


def test_a_call_without_arguments_has_an_empty_input() -> None:
    (use,) = prompted().update("tool_call", toolCallId="t", title="List", rawInput={}, status="in_progress")
    assert use.input == {}


@pytest.mark.parametrize("name", ["terminal_output_delta", "terminal_output"])
def test_the_output_of_a_terminal_is_kept_up_to_its_limit(name: str) -> None:
    talk = prompted()
    talk.update("tool_call", toolCallId="t", content=[{"type": "terminal", "terminalId": "t"}], status="in_progress")
    for piece in ("x" * TERMINAL_CHARS, "lost"):
        talk.update("tool_call_update", toolCallId="t", _meta={name: {"data": piece}})
    (result,) = talk.update("tool_call_update", toolCallId="t", status="completed")
    assert (len(result.content), result.blocks, result.truncated) == (TERMINAL_CHARS, None, True)


def test_a_command_without_output_has_an_empty_result() -> None:
    talk = prompted()
    talk.update("tool_call", toolCallId="t", content=[{"type": "terminal", "terminalId": "t"}], status="in_progress")
    (result,) = talk.update(
        "tool_call_update", toolCallId="t", status="completed", _meta={"terminal_exit": {"exit_code": 0}}
    )
    assert (result.content, result.blocks, result.truncated) == ("", None, False)


def test_a_thought_of_copilots_model_that_begins_like_an_error_fails_nothing() -> None:
    talk = Conversation()
    talk.answer({"protocolVersion": 1, "agentInfo": {"name": "Copilot", "version": "9"}})
    talk.answer({"sessionId": "s"})
    talk.update("agent_thought_chunk", content={"type": "text", "text": "Error: where?"})
    talk.say("There.")
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert terminal.error is None


def test_a_tool_that_never_ends_gets_no_result_and_one_that_never_ran_is_told_at_the_end() -> None:
    talk = prompted()
    assert talk.update("tool_call", toolCallId="t", title="Look", status="pending") == []
    assert [event.type for event in talk.answer({"stopReason": "end_turn"}).events] == ["tool_use"]


def test_a_result_comes_once_even_where_the_agent_says_it_twice() -> None:
    talk = prompted()
    talk.update("tool_call", toolCallId="t", title="Look", status="completed")
    assert talk.update("tool_call_update", toolCallId="t", status="failed") == []


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ([("a", "allow_once"), ("r", "reject_once")], {"outcome": "selected", "optionId": "r"}),
        ([("a", "allow_always"), ("n", "reject_always")], {"outcome": "selected", "optionId": "n"}),
        ([("a", "allow_once")], {"outcome": "cancelled"}),
        ("no list", {"outcome": "cancelled"}),
    ],
)
def test_a_permission_is_refused_with_the_option_that_says_so(options: Any, outcome: dict[str, Any]) -> None:
    talk = prompted()
    listed = [{"optionId": o, "kind": k, "name": o} for o, k in options] if isinstance(options, list) else options
    params = {"sessionId": "s", "toolCall": {"toolCallId": "t", "kind": "edit"}, "options": listed}
    got = talk.hear({"jsonrpc": "2.0", "id": "x-1", "method": "session/request_permission", "params": params})
    assert [event.type for event in got.events] == ["tool_use", "approval_requested"] and not got.replies
    said = json.loads(str(talk.decoder.answer("0:x-1", ApprovalAnswer("deny"))))
    assert said == {"jsonrpc": "2.0", "id": "x-1", "result": {"outcome": outcome}}


USAGES: list[
    tuple[dict[str, int], tuple[int | None, ...]]
] = [  # as told; input, cached, output, thought as clisup counts
    ({"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}, (10, None, 5, None)),
    (
        {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15, "cachedReadTokens": 4, "thoughtTokens": 2},
        (6, 4, 5, 2),
    ),
    (
        {"inputTokens": 10, "outputTokens": 5, "totalTokens": 17, "cachedReadTokens": 4, "thoughtTokens": 2},
        (6, 4, 7, 2),
    ),
    (
        {"inputTokens": 10, "outputTokens": 5, "totalTokens": 19, "cachedReadTokens": 4, "thoughtTokens": 2},
        (10, 4, 5, 2),
    ),
    (
        {"inputTokens": 10, "outputTokens": 5, "totalTokens": 21, "cachedReadTokens": 4, "thoughtTokens": 2},
        (10, 4, 7, 2),
    ),
    ({"inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 4, "thoughtTokens": 2}, (10, 4, 7, 2)),
]


@pytest.mark.parametrize(("told", "counted"), USAGES)
def test_the_total_shows_what_the_agent_counts_where(told: dict[str, int], counted: tuple[int | None, ...]) -> None:
    terminal = prompted().answer({"stopReason": "end_turn", "usage": told}).terminal
    assert terminal is not None
    usage = terminal.usage
    got = (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens, usage.reasoning_tokens)
    assert (got, usage.source) == (counted, "reported")


def test_usage_that_the_agent_does_not_tell_is_unknown() -> None:
    terminal = prompted().answer({"stopReason": "end_turn", "usage": None}).terminal
    assert terminal is not None
    assert terminal.usage.source == "unknown"


@pytest.mark.parametrize(
    ("resume", "spans", "cost"),
    [(False, None, 0.75), (True, None, None), (True, "session", 0.5), (True, "process", 0.75)],
)
def test_a_turns_cost_is_told_where_it_is_known_what_the_agent_sums_up(
    monkeypatch: pytest.MonkeyPatch, resume: bool, spans: Any, cost: float | None
) -> None:
    monkeypatch.setattr(AcpAdapter, "cost_spans", spans)
    talk = Conversation(Carried(0.25, NO_USAGE), resume=resume, native_session_id="s" if resume else None)
    talk.open(sessionCapabilities={"resume": {}})
    talk.update("usage_update", used=7, size=9, cost={"amount": 0.75, "currency": "USD"})
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert terminal.cost_usd == cost


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ((-32000, "Authentication required"), "authentication", None),
        ((-32800, "Request cancelled"), "cancelled", None),
        ((-32603, "Internal error"), "server", None),
        ((-32602, "Invalid params"), "invalid_request", None),
        ((-32002, "Resource not found"), "invalid_request", None),  # of the prompt, the session is there
        ((401, "no"), "authentication", 401),
        ((429, "slow down"), "rate_limit", 429),
        ((529, "busy"), "overloaded", 529),
        ((502, "bad gateway"), "server", 502),
        ((-32603, "Internal error", {"details": "404 no such model"}), "model_not_found", 404),
        ((-32603, "Internal error", {"status": 429, "message": "insufficient_quota"}), "quota_exceeded", 429),
        ((-32603, "maximum context length is 8192 tokens", {"status": 400}), "context_overflow", 400),
        ((-32603, "fetch failed: ECONNREFUSED"), "network", None),
        ((-32603, "Internal error: API Error: Request rejected (429) · Slow down."), "rate_limit", 429),
        ((-32603, "Internal error: the answer has too many lines (500)"), "server", None),
        ((99999, "?"), "server", None),
    ],
)
def test_a_json_rpc_error_becomes_a_kind(error: tuple[Any, ...], kind: str, status: int | None) -> None:
    failure = prompted().fail(*error)
    assert (failure.kind, failure.http_status) == (kind, status)
    assert failure.message.startswith("the agent refused session/prompt: ")


def test_the_words_of_an_api_are_told_without_their_json() -> None:
    failure = prompted().fail(-32603, "Internal error", {"message": '{"error": {"message": "bad thing"}}'})
    assert failure.message == "the agent refused session/prompt: bad thing"


@pytest.mark.parametrize("code", [-32602, -32603, -32002])
def test_a_session_that_cannot_be_loaded_is_session_not_found_and_may_be_made_anew(code: int) -> None:
    talk = Conversation(native_session_id="old", resume=True)
    talk.answer({"protocolVersion": 1, "agentCapabilities": {"loadSession": True}})
    failure = talk.fail(code, "none such")
    assert failure.kind == "session_not_found"
    assert AcpAdapter().recovery(failure) == "fresh"


@pytest.mark.parametrize(
    ("stderr", "kind"), [("Error: API key is missing", "authentication"), ("unknown option: --acp", "invalid_request")]
)
def test_an_exit_before_the_answer_is_explained_by_stderr(stderr: str, kind: str) -> None:
    assert AcpAdapter().explain_exit(RunEnd(1, None, stderr)).kind == kind


def test_an_exit_without_a_word_is_a_crash() -> None:
    failure = AcpAdapter().explain_exit(RunEnd(None, 11, ""))
    assert (failure.kind, failure.retryable) == ("crashed", True)
    assert "SIGSEGV" in failure.message


# What nobody should say


DEEP, NESTED = (b'{"a":' * depth + b"1" + b"}" * depth for depth in (5000, 300))


def _call(number: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":%s}' % (number, params)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"Loading plugins ...", "malformed"),
        (b"[1,2]", "malformed"),
        (b"{}", "malformed"),
        (b'{"id":7,"result":{}}', "malformed"),
        (b'{"id":true,"result":{}}', "malformed"),
        (b'{"id":[],"method":"x"}', "malformed"),
        (b'{"id":1e400,"method":"x"}', "malformed"),
        (_call(b"9" * 5000, b"{}"), "malformed"),
        (DEEP, "malformed"),
        (b'{"method":"session/update","params":' + NESTED + b"}", "malformed"),
        (b'{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call"}}}', "malformed"),
        (b'{"method":"session/update","params":{"update":{"sessionUpdate":"plan"}}}', "malformed"),
        (b'{"method":"session/update","params":{"update":{"sessionUpdate":"dance"}}}', "unknown_type"),
        (b'{"method":"session/update","params":7}', "unknown_type"),
        (b'{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk"}}}', "malformed"),
        (b"\xff\xfe{", "malformed"),
    ],
)
def test_a_line_that_is_none_of_the_protocol_is_kept_and_the_turn_goes_on(frame: bytes, reason: str) -> None:
    talk = prompted()
    (event,) = talk.hear(frame).events
    assert (event.type, event.reason) == ("unparsed", reason)  # type: ignore[attr-defined]
    talk.say("Still here.")
    terminal = talk.answer({"stopReason": "end_turn"}).terminal
    assert terminal is not None
    assert terminal.text == "Still here."


@pytest.mark.parametrize("params", [b"7", b"{}", b'{"toolCall":{"toolCallId":"t","rawInput":' + NESTED + b"}}"])
def test_a_broken_question_is_answered_too(params: bytes) -> None:
    (reply,) = prompted().hear(_call(b'"q"', params)).replies
    assert json.loads(str(reply))["error"]["code"] == -32602


def test_an_answer_without_its_fields_fails_the_turn_in_words() -> None:
    for broken in ({"protocolVersion": "1"}, {}, 7, None):
        terminal = Conversation().answer(broken).terminal
        assert terminal is not None and terminal.error is not None
        assert terminal.error.kind == "protocol"
    terminal = prompted().answer({}).terminal
    assert terminal is not None and terminal.error is not None
    assert "stopReason" in terminal.error.message
