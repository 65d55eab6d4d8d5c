"""What a CLI asks becomes an approval, and its answer the line that the CLI wants: codex, ACP agents and claude."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.backends.approvals import ApprovalAnswer, Questions
from clisup.backends.base import Carried, Decoder, LaunchRequest
from clisup.backends.registry import get_adapter
from clisup.errors import UsageError
from clisup.model.events import EventBase
from clisup.model.lines.framing import Line
from tests.backends.recorded import Recording
from tests.e2e.mcp_server import FILLED, FORM, LOGIN

ALLOW, DENY, ALWAYS = ApprovalAnswer("allow"), ApprovalAnswer("deny"), ApprovalAnswer("allow", remember=True)
CANCELLED = ApprovalAnswer("cancelled")


def decoder(kind: str, run: int = 3) -> Decoder:
    request = LaunchRequest(
        command=("x",), prompt="p", native_session_id=None, resume=False, cwd="/w", permission_mode=None, run=run
    )
    return get_adapter(kind).decoder(Carried(0.0), request)


def hear(decoder: Decoder, *frames: Any) -> list[Any]:
    """The events of these frames."""
    events: list[EventBase] = []
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        events += decoder.decode(Line(0, len(data) + 1, data)).events
    return events


def live_claude() -> Decoder:
    request = LaunchRequest(command=("claude",), prompt="", native_session_id=None, resume=False, cwd="/", live=True)
    return get_adapter("claude").decoder(Carried(), request)


def line_of(frame: Any) -> Line:
    data = json.dumps(frame).encode()
    return Line(0, len(data) + 1, data)


def said(decoder: Decoder, approval_id: str, answer: ApprovalAnswer) -> Any:
    text = decoder.answer(approval_id, answer)
    assert text is not None and text.endswith("\n") and text.count("\n") == 1
    return json.loads(text)


def of(events: Sequence[Any], type_: str) -> list[Any]:
    return [event for event in events if event.type == type_]


# What all of them have in common


def word(answer: ApprovalAnswer) -> str:
    return answer.decision


def test_an_id_has_the_run_before_it_and_one_that_is_used_again_gets_a_number() -> None:
    questions = Questions(7)
    first = questions.ask(0, word, tool_name="a")
    assert first.approval_id == "7:0"
    assert [event.approval_id for event in questions.withdraw(0)] == ["7:0"]
    assert questions.ask(0, word, tool_name="a").approval_id == "7:0#2"
    assert questions.ask("0", word, tool_name="a").approval_id == "7:0#3"
    assert questions.answer("7:0", ALLOW) is None and questions.answer("7:0#2", DENY) == "deny"
    assert sorted(event.approval_id for event in questions.close()) == ["7:0#2", "7:0#3"]
    assert questions.answer("7:0#2", DENY) is None and questions.close() == []


@given(st.lists(st.one_of(st.integers(-2, 2), st.sampled_from(["0", "1", "x" * 400, "x" * 401, "", "a#2"]), st.none())))
def test_no_two_questions_of_a_run_ever_have_the_same_id(ids: list[str | int | None]) -> None:
    questions = Questions(1)
    given_out = [questions.ask(request_id, word, tool_name="t").approval_id for request_id in ids]
    assert len(set(given_out)) == len(given_out)
    assert all(len(name) < 400 for name in given_out)


@pytest.mark.parametrize("kind", ["codex-exec", "gemini", "claude", "qwen", "codex", "acp"])
def test_an_answer_to_nothing_is_nothing(kind: str) -> None:
    assert decoder(kind).answer("3:1", ALLOW) is None


# codex, by its own recordings


def codex(name: str) -> tuple[Decoder, list[Any]]:
    """A decoder that has heard a recording up to its last question, and the questions."""
    own, events = decoder("codex"), []
    for line in Recording.of(f"codex/{name}").lines():
        heard = own.decode(line).events
        events += of(heard, "approval_requested")
        if of(heard, "approval_resolved"):
            break
    return own, events


def test_a_command_of_codex_is_asked_for_without_the_shell_around_it() -> None:
    _, asked = codex("approved")
    command = next(event for event in asked if event.tool_name == "exec_command")
    assert command.input["command"] == "id -u; echo 'two words'" and command.input["cwd"].endswith("/cwd")
    assert command.reason == "a" and command.tool_use_id.startswith("call_")
    assert command.suggestions == ({"type": "exec_policy_prefix", "command": ["id", "-u"]},) or not command.suggestions


def test_a_patch_of_codex_is_asked_for_with_its_paths() -> None:
    _, (patch,) = codex("patch_declined")
    assert patch.tool_name == "apply_patch"
    assert [change["path"] for change in patch.input["changes"]] == ["/scratch/outside.txt"]


@pytest.mark.parametrize(
    ("recording", "answer", "result"),
    [
        ("tool_escalated", ALLOW, {"decision": "accept"}),
        ("tool_escalated", DENY, {"decision": "decline"}),
        ("tool_escalated", ALWAYS, {"decision": "acceptForSession"}),
        ("patch_declined", ALWAYS, {"decision": "acceptForSession"}),
        ("permissions", ALLOW, {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        ("permissions", ALWAYS, {"permissions": {"network": {"enabled": True}}, "scope": "session"}),
        ("permissions", DENY, {"permissions": {}, "scope": "turn"}),
        ("mcp_refused", ALLOW, {"action": "accept", "content": {}, "_meta": None}),
        ("mcp_refused", ALWAYS, {"action": "accept", "content": {}, "_meta": {"persist": "session"}}),
        ("mcp_refused", DENY, {"action": "decline", "content": None, "_meta": None}),
    ],
)
def test_codex_is_answered_in_the_words_of_each_question(
    recording: str, answer: ApprovalAnswer, result: dict[str, Any]
) -> None:
    own, asked = codex(recording)
    assert asked[0].approval_id == "3:0"
    assert own.answer("3:0", answer) is None  # codex has said that it waits no longer
    own = decoder("codex")
    for line in Recording.of(f"codex/{recording}").lines():
        if of(own.decode(line).events, "approval_requested"):
            break
    assert said(own, "3:0", answer) == {"id": 0, "result": result}
    assert own.answer("3:0", CANCELLED) is None  # turn/interrupt says that
    with pytest.raises(UsageError, match="cannot change the input") as refused:
        own.answer("3:0", ApprovalAnswer("allow", updated_input={}))
    assert refused.value.kind == "unsupported"


def test_an_mcp_tool_of_codex_has_the_name_that_it_has_elsewhere() -> None:
    _, asked = codex("mcp_refused")
    assert (asked[0].tool_name, asked[0].input) == ("mcp__good__add", {"a": 1, "b": 2})
    assert asked[0].reason == 'Allow the good MCP server to run tool "add"?'


def test_what_is_typed_into_a_command_or_wants_the_network_is_no_command_to_a_rule() -> None:
    params = {"itemId": "c", "command": "/bin/bash -lc 'git status'", "cwd": "/w"}
    method = "item/commandExecution/requestApproval"
    typed = {"id": 1, "method": method, "params": {**params, "kind": "writeStdin"}}
    network = {
        "id": 2,
        "method": method,
        "params": {**params, "networkApprovalContext": {"host": "h", "protocol": "https"}},
    }
    more = {"id": 3, "method": method, "params": {**params, "additionalPermissions": {"network": {"enabled": True}}}}
    one, two, three = hear(decoder("codex"), typed, network, more)
    assert (one.tool_name, one.input) == ("write_stdin", {"for_command": "git status", "cwd": "/w"})
    assert two.tool_name == "network_access" and "command" not in two.input and two.input["network"]["host"] == "h"
    assert three.input["additional_permissions"] == {"network": {"enabled": True}}


@pytest.mark.parametrize("command", ["bash -lc 'a' b", "/bin/bash -lc 'unclosed", "python -c 'x'", "", "bash -c"])
def test_a_command_that_is_not_one_argument_of_a_shell_is_told_as_it_is(command: str) -> None:
    frame = {"id": 1, "method": "item/commandExecution/requestApproval", "params": {"itemId": "c", "command": command}}
    (asked,) = hear(decoder("codex"), frame)
    assert asked.input.get("command", "") == command


def test_what_codex_leaves_open_at_its_end_is_cancelled() -> None:
    own = decoder("codex")
    thread = {"id": 2, "result": {"thread": {"id": "t"}}}
    asked = {"id": 5, "method": "item/fileChange/requestApproval", "params": {"itemId": "c", "threadId": "t"}}
    ended = {"method": "turn/completed", "params": {"threadId": "t", "turn": {"status": "interrupted"}}}
    resolved = of(hear(own, thread, asked, ended), "approval_resolved")
    assert [(event.approval_id, event.decision) for event in resolved] == [("3:5", "cancelled")]


# ACP agents


def asking(*kinds: str, request_id: Any = 9) -> Decoder:
    """A decoder of an agent that has been prompted and asks for a permission."""
    own = decoder("acp")
    options = [{"optionId": f"o-{kind}", "kind": kind, "name": kind} for kind in kinds]
    params = {"sessionId": "s", "toolCall": {"toolCallId": "t", "name": "Bash"}, "options": options}
    hear(own, {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}})
    hear(own, {"jsonrpc": "2.0", "id": 1, "result": {"sessionId": "s"}})
    (_, asked) = hear(
        own, {"jsonrpc": "2.0", "id": request_id, "method": "session/request_permission", "params": params}
    )
    assert asked.suggestions == tuple(options)
    return own


ALL = ("allow_once", "allow_always", "reject_once", "reject_always")


@pytest.mark.parametrize(
    ("offered", "answer", "chosen"),
    [
        (ALL, ALLOW, "o-allow_once"),
        (ALL, ALWAYS, "o-allow_always"),
        (ALL, DENY, "o-reject_once"),
        (ALL, ApprovalAnswer("deny", remember=True), "o-reject_always"),
        (("allow_once",), ALWAYS, "o-allow_once"),
        (("reject_always",), DENY, "o-reject_always"),
        ((), DENY, None),
        (ALL, CANCELLED, None),
    ],
)
def test_an_agent_is_answered_with_the_option_that_says_so(
    offered: tuple[str, ...], answer: ApprovalAnswer, chosen: str | None
) -> None:
    outcome = {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
    assert said(asking(*offered), "3:9", answer) == {"jsonrpc": "2.0", "id": 9, "result": {"outcome": outcome}}


@pytest.mark.parametrize("offered", [(), ("allow_always",), ("reject_once",)])
def test_what_an_agent_does_not_offer_is_not_allowed_and_nothing_is_allowed_for_ever_unasked(offered: Any) -> None:
    with pytest.raises(UsageError, match="does not offer") as refused:
        asking(*offered).answer("3:9", ALLOW)
    assert refused.value.kind == "unsupported"


@pytest.mark.parametrize(("request_id", "approval_id"), [("abc", "3:abc"), (None, "3:None"), (-4, "3:-4")])
def test_the_id_of_an_agents_request_comes_back_as_it_was(request_id: Any, approval_id: str) -> None:
    assert said(asking(*ALL, request_id=request_id), approval_id, ALLOW)["id"] == request_id


# claude, by the frames of 2.1.329

SUGGESTIONS = [
    {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "echo made *"}], "behavior": "allow",
     "destination": "localSettings"},
    {"type": "addDirectories", "directories": ["/scratch/cwd"], "destination": "session"},
    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
]  # fmt: skip
CAN_USE = {
    "type": "control_request",
    "request_id": "091fe075-0000-4000-8000-000000000000",
    "request": {
        "subtype": "can_use_tool", "tool_name": "Bash", "display_name": "Bash",
        "input": {"command": "echo made > made.txt", "description": "run t1"}, "description": "run t1",
        "permission_suggestions": SUGGESTIONS, "blocked_path": "/scratch/cwd/made.txt", "tool_use_id": "toolu_t1",
    },
}  # fmt: skip
ID = f"3:{CAN_USE['request_id']}"


def changed(**fields: Any) -> dict[str, Any]:
    return {**CAN_USE, "request": {**CAN_USE["request"], **fields}}  # type: ignore[dict-item]


def response(own: Decoder, answer: ApprovalAnswer) -> Any:
    frame = said(own, ID, answer)
    assert (frame["type"], frame["response"]["subtype"]) == ("control_response", "success")
    assert frame["response"]["request_id"] == CAN_USE["request_id"]
    return frame["response"]["response"]


def test_claude_asks_with_what_it_would_remember() -> None:
    (asked,) = hear(decoder("claude"), changed(decision_reason="Path is outside allowed working directories"))
    assert (asked.approval_id, asked.tool_name, asked.tool_use_id) == (ID, "Bash", "toolu_t1")
    assert asked.input == {"command": "echo made > made.txt", "description": "run t1"}
    assert list(asked.suggestions) == SUGGESTIONS
    assert asked.reason == "Path is outside allowed working directories"


def test_claude_is_allowed_with_its_input_or_with_another_one() -> None:
    own = decoder("claude")
    hear(own, CAN_USE)
    assert response(own, ALLOW) == {"behavior": "allow"}
    other = ApprovalAnswer("allow", updated_input={"command": "echo other"})
    assert response(own, other) == {"behavior": "allow", "updatedInput": {"command": "echo other"}}


def test_claude_is_denied_with_a_message_which_it_requires() -> None:
    own = decoder("claude")
    hear(own, CAN_USE)
    assert response(own, ApprovalAnswer("deny", message="Not today.")) == {"behavior": "deny", "message": "Not today."}
    assert response(own, DENY)["message"]


def test_claude_remembers_the_narrowest_of_its_suggestions_and_writes_no_file_for_it() -> None:
    own = decoder("claude")
    hear(own, CAN_USE)
    assert response(own, ALWAYS)["updatedPermissions"] == [{**SUGGESTIONS[0], "destination": "session"}]
    own = decoder("claude")
    hear(own, changed(permission_suggestions=SUGGESTIONS[2:]))
    assert response(own, ALWAYS)["updatedPermissions"] == [SUGGESTIONS[2]]
    own = decoder("claude")
    hear(own, changed(permission_suggestions=None))
    assert response(own, ALWAYS) == {"behavior": "allow"}


def test_claude_takes_a_question_back_or_leaves_it_at_its_result() -> None:
    own = decoder("claude")
    cancel = {"type": "control_cancel_request", "request_id": CAN_USE["request_id"]}
    *_, gone = hear(own, CAN_USE, cancel)
    assert (gone.approval_id, gone.decision, own.answer(ID, ALLOW)) == (ID, "cancelled", None)
    assert hear(own, cancel) == []
    own = decoder("claude")
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "", "total_cost_usd": 0}
    assert [event.approval_id for event in of(hear(own, CAN_USE, result), "approval_resolved")] == [ID]
    assert own.answer(ID, CANCELLED) is None


@pytest.mark.parametrize(
    "subtype", ["request_user_dialog", "host_auth_token_refresh", "remote_tool_call", "tomorrow", None]
)
def test_a_request_of_claude_that_nobody_here_answers_gets_an_error_at_once(subtype: str | None) -> None:
    decoded = live_claude().decode(line_of({**CAN_USE, "request": {"subtype": subtype}}))
    assert [event.type for event in decoded.events] == ["unparsed"]
    (reply,) = [json.loads(str(reply)) for reply in decoded.replies]
    assert (reply["type"], reply["response"]["subtype"]) == ("control_response", "error")
    assert reply["response"]["request_id"] == CAN_USE["request_id"]


def test_a_question_of_claude_that_is_broken_gets_an_error_at_once_too() -> None:
    decoded = live_claude().decode(line_of(changed(tool_name=7)))
    assert [json.loads(str(reply))["response"]["subtype"] for reply in decoded.replies] == ["error"]


def opened(kind: str, name: str) -> tuple[Decoder, Any]:
    """A decoder that has heard a recording up to its first question, and the question."""
    own = live_claude() if kind == "claude" else decoder(kind)
    for line in Recording.of(f"{kind}/{name}").lines():
        if found := of(own.decode(line).events, "approval_requested"):
            return own, found[0]
    raise AssertionError("nothing was asked")


def recorded_answers(name: str) -> list[Any]:
    return [
        frame for way, frame in Recording.of(name).dialogue() if way == "said" and frame["type"] == "control_response"
    ]


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_an_elicitation_of_an_mcp_server_is_an_approval_with_its_schema(kind: str) -> None:
    _, form = opened(kind, "live_elicitation_form" if kind == "claude" else "elicitation_form")
    assert (form.tool_name, form.input["server"]) == ("mcp__good__elicitation", "good")
    assert (form.input["mode"], form.input["message"]) == ("form", FORM["message"])
    assert form.input["requested_schema"] == FORM["requestedSchema"]
    _, login = opened(kind, "live_elicitation_url" if kind == "claude" else "elicitation_url")
    assert login.input == {
        "message": LOGIN["message"], "mode": "url", "server": "good", "url": LOGIN["url"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("live_elicitation", DENY),
        ("live_elicitation_form", ApprovalAnswer("allow", updated_input={"content": FILLED})),
        ("live_elicitation_url", ALLOW),
    ],
)
def test_claude_hears_the_answer_to_an_elicitation_as_it_was_recorded(name: str, answer: ApprovalAnswer) -> None:
    own, asked = opened("claude", name)
    assert [said(own, asked.approval_id, answer)] == recorded_answers(f"claude/{name}")
    assert own.answer(asked.approval_id, CANCELLED) is None  # the interrupt cancels the request
    assert Recording.of(f"claude/{name}").terminal().denied == ()


def test_an_interrupt_of_claude_withdraws_an_elicitation() -> None:
    events = Recording.of("claude/live_elicitation_interrupt").events("approval_resolved")
    assert [event.decision for event in events] == ["cancelled"]


@pytest.mark.parametrize(
    ("name", "answer", "result"),
    [
        ("elicitation_form", ApprovalAnswer("allow", updated_input={"content": FILLED}),
         {"action": "accept", "content": FILLED, "_meta": None}),
        ("elicitation_form", DENY, {"action": "decline", "content": None, "_meta": None}),
        ("elicitation_url", ALLOW, {"action": "accept", "content": None, "_meta": None}),
        ("user_input", ApprovalAnswer("allow", updated_input={"answers": {"Which database?": "Postgres", "Which port?": "1"}}),
         {"answers": {"store": {"answers": ["Postgres"]}, "port": {"answers": ["1"]}}}),
        ("user_input", DENY, {"answers": {}}),
    ],
)  # fmt: skip
def test_codex_hears_the_answer_to_an_elicitation_or_a_question_in_its_words(
    name: str, answer: ApprovalAnswer, result: dict[str, Any]
) -> None:
    own, asked = opened("codex", name)
    assert said(own, asked.approval_id, answer) == {"id": 0, "result": result}
    assert own.answer(asked.approval_id, CANCELLED) is None  # turn/interrupt ends the question with the turn


@pytest.mark.parametrize("name", ["elicitation_interrupt", "user_input_interrupt"])
def test_an_interrupt_of_codex_withdraws_what_it_asks(name: str) -> None:
    events = Recording.of(f"codex/{name}").events("approval_resolved")
    assert [event.decision for event in events] == ["cancelled"]


def test_the_questions_of_codex_are_an_approval_with_the_questions() -> None:
    _, asked = opened("codex", "user_input")
    assert asked.tool_name == "request_user_input" and asked.tool_use_id == "call_0"
    assert [question["question"] for question in asked.input["questions"]] == ["Which database?", "Which port?"]


@pytest.mark.parametrize(
    ("kind", "name", "answer", "words"),
    [
        ("claude", "live_elicitation", ALLOW, '"colour" is missing'),
        (
            "claude",
            "live_elicitation",
            ApprovalAnswer("allow", updated_input={"content": {"colour": 1}}),
            "must be a text",
        ),
        ("codex", "elicitation_form", ApprovalAnswer("allow", updated_input={"content": {"coats": 4}}), "1 to 3"),
        ("codex", "user_input", ALLOW, '"Which database?" has no answer'),
        (
            "codex",
            "user_input",
            ApprovalAnswer("allow", updated_input={"answers": {"Which database?": 1}}),
            "has no answer",
        ),
        ("codex", "user_input", ApprovalAnswer("allow", updated_input={"answers": []}), "has no answer"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open(
    kind: str, name: str, answer: ApprovalAnswer, words: str
) -> None:
    own, asked = opened(kind, name)
    with pytest.raises(UsageError, match=re.escape(words)) as refused:
        own.answer(asked.approval_id, answer)
    assert refused.value.kind == "invalid_params"
    assert own.answer(asked.approval_id, DENY) is not None


@pytest.mark.parametrize(("kind", "name"), [("claude", "live_elicitation_url"), ("codex", "user_input")])
def test_a_rule_that_allows_cannot_answer_for_the_user(kind: str, name: str) -> None:
    own, asked = opened(kind, name)
    with pytest.raises(UsageError, match="by a rule") as refused:
        own.answer(asked.approval_id, ApprovalAnswer("allow", by_rule=True))
    assert refused.value.kind == "unsupported"


@pytest.mark.parametrize("change", [{"tool_name": 7}, {"tool_name": None}])
def test_a_question_of_claude_without_a_tool_is_unparsed(change: dict[str, Any]) -> None:
    (event,) = hear(decoder("claude"), changed(**change))
    assert event.type == "unparsed"
