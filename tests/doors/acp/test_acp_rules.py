"""The pure rules of `clisup acp`: versions and errors, prompts, questions, tool calls, settings, and ends of turns."""

from __future__ import annotations

from typing import Any

import pytest
from acp import schema

from clisup.client.events import ApprovalRequested, TurnCompleted, TurnError
from clisup.doors import tool_calls
from clisup.doors.acp import prompts, protocol, questions, settings, turns
from clisup.errors import KINDS, ClisupError, UsageError, WorldError
from clisup.model.usage import Usage

CALL = {"toolCallId": "t1.c", "title": "x", "kind": "other", "rawInput": {}}


# -- protocol


@pytest.mark.parametrize(("asked", "spoken"), [(1, 1), (2, 1), (0, 1), (65535, 1)])
def test_an_unknown_version_gets_ours(asked: int, spoken: int) -> None:
    assert protocol.negotiated(asked) == spoken


@pytest.mark.parametrize("asked", [None, "1", True, -1, 70000, 1.0])
def test_what_is_no_version_is_refused(asked: object) -> None:
    with pytest.raises(UsageError):
        protocol.negotiated(asked)


def test_the_answer_to_initialize_fits_the_schema_and_tells_what_the_backend_has() -> None:
    told = protocol.initialize_result(1, {"images": True, "fork": True, "mcp": True})
    read = schema.InitializeResponse.model_validate(told)
    assert read.agent_capabilities and read.agent_capabilities.session_capabilities
    assert read.agent_capabilities.session_capabilities.fork is not None
    less = protocol.initialize_result(1, {})["agentCapabilities"]
    assert "fork" not in less["sessionCapabilities"] and not less["promptCapabilities"]["image"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_error_has_a_code_of_the_protocol(kind: str) -> None:
    error = protocol.error_object(ClisupError("it failed", kind=kind, hint="do this"))
    assert schema.Error.model_validate(error)
    assert error["code"] in (-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002)
    assert (error["message"], error["data"]["kind"]) == ("it failed; do this", kind)


# -- prompts


def test_text_and_links_are_one_text_as_they_stand() -> None:
    blocks = [
        {"type": "text", "text": "See "},
        {"type": "resource_link", "uri": "file:///a/b.py", "name": "b.py"},
        {"type": "text", "text": " and "},
        {"type": "resource_link", "uri": "https://x/y"},
    ]
    assert prompts.prompt_of(blocks) == [{"type": "text", "text": "See [@b.py](/a/b.py) and [@y](https://x/y)"}]


def test_resources_follow_the_text_and_images_stay_in_place() -> None:
    blocks = [
        {"type": "resource", "resource": {"uri": "zed://x", "text": "inside"}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "zed://y", "blob": "BBBB", "mimeType": "image/gif"}},
    ]
    assert prompts.prompt_of(blocks) == [
        {"type": "text", "text": "[@x](zed://x)"},
        {"type": "image", "media_type": "image/png", "data": "AAAA"},
        {"type": "image", "media_type": "image/gif", "data": "BBBB"},
        {"type": "text", "text": '\n<context ref="zed://x">\ninside\n</context>'},
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "x", "blob": "AAAA"}},
        {"type": "text"},
        {"type": "video"},
        {},
        "text",
    ],
)
def test_other_blocks_are_refused(block: Any) -> None:
    with pytest.raises(UsageError, match="block 1"):
        prompts.prompt_of([block])


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match="1000 blocks"):
        prompts.prompt_of([{"type": "text", "text": "x"}] * (prompts.MAX_BLOCKS + 1))


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/compact keep the tests", ("compact", "keep the tests")),
        ("/status", ("status", "")),
        ("no /status", None),
        ("/", None),
        ("/home/me/file.py is broken", None),
        ("/model\nbig", ("model", "big")),
    ],
)
def test_a_command_is_a_prompt_that_begins_with_a_slash(text: str, command: tuple[str, str] | None) -> None:
    assert prompts.command_of([{"type": "text", "text": text}]) == command


# -- questions


def asked(name: str, given: dict[str, Any], **more: Any) -> ApprovalRequested:
    return ApprovalRequested("1:a", name, given, **more)


def chosen(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


CANCELLED = {"outcome": {"outcome": "cancelled"}}
COLOURS = {
    "questions": [{"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue", "description": "cold"}]}]
}


def checked(dialog: questions.EditorDialog) -> questions.EditorDialog:
    for params in dialog.permissions:
        schema.RequestPermissionRequest.model_validate({"sessionId": "s", **params})
    if dialog.form is not None:
        schema.CreateFormSessionElicitationRequest.model_validate({"sessionId": "s", **dialog.form})
    return dialog


def test_a_tool_is_allowed_once_or_always_or_denied() -> None:
    dialog = checked(questions.dialog_of(asked("Bash", {}, reason="it writes"), CALL))
    assert dialog.permissions[0]["toolCall"]["content"][0]["content"]["text"] == "it writes"
    answers = [
        questions.answer_of_permission(dialog, chosen(option)) for option in ("allow", "always", "deny", "other")
    ]
    assert [answer and answer.params() for answer in answers] == [
        {"decision": "allow"}, {"decision": "allow", "remember": True}, {"decision": "deny"}, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "result", [CANCELLED, None, {}, {"outcome": "selected"}, {"outcome": {"outcome": "selected", "optionId": 1}}]
)
def test_no_choice_leaves_the_approval_open(result: Any) -> None:
    assert questions.answer_of_permission(questions.dialog_of(asked("Bash", {}), CALL), result) is None
    assert questions.answer_of_choices(asked("AskUserQuestion", COLOURS), [result]) is None


def test_a_plan_that_is_refused_is_planned_on() -> None:
    dialog = checked(questions.dialog_of(asked("ExitPlanMode", {"plan": "# Plan"}), CALL))
    answer = questions.answer_of_permission(dialog, chosen("deny"))
    assert answer is not None and answer.message == questions.KEEP_PLANNING


def test_choices_answer_questions_by_their_labels() -> None:
    approval = asked("AskUserQuestion", COLOURS)
    dialog = checked(questions.dialog_of(approval, CALL))
    answer = questions.answer_of_choices(approval, [chosen("1")])
    assert answer is not None and answer.updated_input == {**COLOURS, "answers": {"Which?": "Blue"}}
    assert questions.answer_of_choices(approval, [chosen("7")]) is None
    denied = questions.answer_of_choices(approval, [chosen("deny")])
    assert denied is not None and denied.decision == "deny" and not questions.goes_on(chosen("deny"))
    filled = questions.answer_of_form(dialog, approval, {"action": "accept", "content": {"question_1": "Red"}})
    assert filled is not None and filled.updated_input == {**COLOURS, "answers": {"Which?": "Red"}}


def test_several_labels_are_joined_as_claude_reads_them() -> None:
    given = {"questions": [{"question": "Which?", "multiSelect": True, "options": [{"label": "a, b"}, {"label": "c"}]}]}
    approval = asked("AskUserQuestion", given)
    dialog = checked(questions.dialog_of(approval, CALL))
    answer = questions.answer_of_form(dialog, approval, {"action": "accept", "content": {"question_1": ["a, b", "c"]}})
    assert answer is not None and answer.updated_input is not None
    assert answer.updated_input["answers"] == {"Which?": '"a, b", c'}


def test_free_questions_need_a_form() -> None:
    dialog = checked(questions.dialog_of(asked("request_user_input", {"questions": [{"question": "Name?"}]}), CALL))
    assert dialog.permissions == () and dialog.form is not None


def test_questions_of_an_unknown_form_are_a_plain_tool_call() -> None:
    for given in ({}, {"questions": []}, {"questions": ["x"]}, {"questions": [{"question": "x", "options": [1]}]}):
        assert questions.dialog_of(asked("AskUserQuestion", given), CALL).kind == "tool"


def test_an_elicitation_is_a_form_or_a_yes_or_no() -> None:
    schema_ = {"type": "object", "properties": {"name": {"type": "string"}}}
    approval = asked(
        "mcp__who__elicitation", {"message": "Who?", "mode": "form", "server": "who", "requested_schema": schema_}
    )
    dialog = checked(questions.dialog_of(approval, CALL))
    assert dialog.form is not None and dialog.form["message"] == "who: Who?"
    answer = questions.answer_of_form(dialog, approval, {"action": "accept", "content": {"name": "Ada"}})
    assert answer is not None and answer.updated_input == {"content": {"name": "Ada"}}
    declined = questions.answer_of_form(dialog, approval, {"action": "decline"})
    assert declined is not None and declined.decision == "deny"
    assert questions.answer_of_form(dialog, approval, {"action": "cancel"}) is None
    url = checked(
        questions.dialog_of(asked("elicitation", {"message": "Open", "mode": "url", "url": "https://x"}), CALL)
    )
    assert url.form is None and len(url.permissions[0]["options"]) == 2
    accepted = questions.answer_of_permission(url, chosen("allow"))
    assert accepted is not None and accepted.updated_input == {"content": {}}


# -- tool calls


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Bash", "execute"), ("exec_command", "execute"), ("read_file", "read"), ("Grep", "search"), ("replace", "edit"),
     ("WebFetch", "fetch"), ("ExitPlanMode", "switch_mode"), ("mcp__x__y", "other")],
)  # fmt: skip
def test_a_tool_has_the_kind_of_its_name(name: str, kind: str) -> None:
    assert tool_calls.kind_of(name) == kind


def test_a_title_is_one_short_line() -> None:
    assert tool_calls.title_of("Bash", {"command": "ls\n  -l"}) == "Bash ls -l"
    assert tool_calls.title_of("x", {"a": 1}) == 'x {"a": 1}'
    assert len(tool_calls.title_of("Bash", {"command": "y" * 9999})) == tool_calls.TITLE_CHARS


def test_changes_of_every_backend_are_found() -> None:
    edits = {
        "file_path": "/f",
        "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
    }
    assert [d["newText"] for d in tool_calls.changes("MultiEdit", edits, "/")] == ["b", "d"]
    assert tool_calls.changes("Write", {"file_path": "/f", "content": "x"}, "/")[0]["oldText"] is None
    assert tool_calls.changes("Bash", {"path": "/f", "content": "x"}, "/") == []
    patch = {
        "changes": [
            {"path": "/a", "kind": "add", "diff": "new\n"},
            {"path": "/b", "kind": {"type": "delete"}, "diff": "old\n"},
            {"path": "c", "kind": "update", "diff": "@@ -1,2 +1,2 @@\n same\n-x\n+y\n"},
        ]
    }
    assert tool_calls.changes("apply_patch", patch, "/w") == [
        {"type": "diff", "path": "/a", "oldText": None, "newText": "new\n"},
        {"type": "diff", "path": "/b", "oldText": "old\n", "newText": ""},
        {"type": "diff", "path": "/w/c", "oldText": "same\nx\n", "newText": "same\ny\n"},
    ]
    assert [place["path"] for place in tool_calls.locations(patch)] == ["/a", "/b", "c"]


def test_a_read_says_its_line() -> None:
    assert tool_calls.locations({"file_path": "/f", "offset": 12}) == [{"path": "/f", "line": 12}]


def test_plans_of_every_backend_are_read() -> None:
    for given in (
        {"todos": [{"content": "Look", "status": "in_progress"}]},
        {"todos": [{"description": "Look", "status": "in_progress"}]},
        {"plan": [{"step": "Look", "status": "inProgress"}]},
    ):
        assert tool_calls.plan_of(given) == [{"content": "Look", "priority": "medium", "status": "in_progress"}]


# -- settings

DEMO = settings.SessionBackend("demo", {"permission_modes": ["default", "plan"], "controls": ["compact"], "fork": True})


def test_modes_and_options_have_the_current_value() -> None:
    modes = settings.modes(DEMO, "plan")
    assert schema.SessionModeState.model_validate(modes).current_mode_id == "plan"
    options = settings.config_options(DEMO, None, "big", ["small", "big"])
    for option in options:
        schema.SessionConfigOptionSelect.model_validate(option)
    assert [(o["id"], o["currentValue"]) for o in options] == [("mode", "default"), ("model", "big")]
    assert settings.modes(settings.SessionBackend("acp", {"permission_modes": None}), None) is None


def test_a_backend_has_only_the_commands_that_it_can_carry_out() -> None:
    assert {c["name"] for c in DEMO.commands} == {name for name, _, _ in settings.COMMANDS}
    less = settings.SessionBackend("x", {})
    assert {"fork", "compact"}.isdisjoint(c["name"] for c in less.commands)


def test_mcp_servers_become_claudes() -> None:
    servers = [
        {"name": "a", "command": "/a", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
        {"name": "b", "type": "sse", "url": "https://b", "headers": [{"name": "H", "value": "w"}]},
    ]
    assert settings.mcp_config(servers) == {
        "mcpServers": {
            "a": {"type": "stdio", "command": "/a", "args": ["-x"], "env": {"K": "v"}},
            "b": {"type": "sse", "url": "https://b", "headers": {"H": "w"}},
        }
    }
    assert settings.mcp_config([]) is None


# -- ends of turns


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (TurnCompleted("completed"), "end_turn"),
        (TurnCompleted("completed", stop_reason="max_tokens"), "max_tokens"),
        (TurnCompleted("interrupted"), "cancelled"),
        (TurnCompleted("failed", error=TurnError("refusal", "no")), "refusal"),
        (TurnCompleted("failed", error=TurnError("max_turns", "no")), "max_turn_requests"),
    ],
)
def test_an_end_has_the_protocols_reason(end: TurnCompleted, reason: str) -> None:
    result = turns.prompt_result(end, "demo", "s")
    assert schema.PromptResponse.model_validate(result).stop_reason == reason


def test_a_failed_turn_is_an_error_with_the_next_step() -> None:
    end = TurnCompleted("failed", error=TurnError("authentication", "Not logged in"))
    with pytest.raises(WorldError) as caught:
        turns.prompt_result(end, "claude", "s")
    error = protocol.error_object(caught.value)
    assert error["code"] == protocol.AUTH_REQUIRED and "log in with the CLI itself (claude)" in error["message"]


def test_usage_is_told_if_it_is_known() -> None:
    end = TurnCompleted("completed", usage=Usage(input_tokens=3, output_tokens=4, cache_read_input_tokens=5))
    read = schema.PromptResponse.model_validate(turns.prompt_result(end, "x", "s")).usage
    assert read is not None and (read.total_tokens, read.cached_read_tokens) == (12, 5)
    assert "usage" not in turns.prompt_result(TurnCompleted("completed"), "x", "s")


def test_several_answers_of_an_agent_reach_the_editor_as_they_are() -> None:
    options = ({"optionId": "p", "name": "Production", "kind": "allow_once"}, {"optionId": "no", "name": "Reject"},
               {"optionId": "s", "name": "Staging", "kind": "allow_once"})  # fmt: skip
    asked = ApprovalRequested("1:a", "deploy", {}, suggestions=options)
    dialog = questions.dialog_of(asked, CALL)
    (shown,) = dialog.permissions
    read = schema.RequestPermissionRequest.model_validate({"sessionId": "s", **shown})
    assert [(o.option_id, o.kind) for o in read.options] == [
        ("p", "allow_once"),
        ("no", "reject_once"),
        ("s", "allow_once"),
    ]
    for option, decision in (("s", "allow"), ("no", "deny")):
        result = {"outcome": {"outcome": "selected", "optionId": option}}
        answer = questions.answer_of_permission(dialog, result)
        assert answer is not None and (answer.decision, answer.option) == (decision, option)
    assert questions.answer_of_permission(dialog, {"outcome": {"outcome": "selected", "optionId": "else"}}) is None
