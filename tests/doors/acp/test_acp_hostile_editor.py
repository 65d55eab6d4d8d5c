"""Inputs of any shape, from an editor, a CLI or a model: the rules of `clisup acp` refuse them or show them, and never fail."""

from __future__ import annotations

import json
from typing import Any

from acp import schema
from hypothesis import given
from hypothesis import strategies as st
from updates_kit import enveloped, shown

from clisup.client.events import ApprovalRequested, BackendStatus, PromptAccepted, ToolResult, ToolUse, TurnStarted
from clisup.doors.acp import prompts, questions, settings
from clisup.doors.acp.updates import UpdateMaker, tool_call
from clisup.errors import UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    ["questions", "question", "options", "label", "message", "mode", "form", "requested_schema", "properties", "todos", "content",
     "changes", "path", "diff", "kind", "edits", "file_path", "old_string", "new_string", "plan", "url", "command", "server"]
)  # fmt: skip
INPUT = st.dictionaries(WORDS, JSON | st.dictionaries(WORDS, JSON) | st.lists(st.dictionaries(WORDS, JSON)), max_size=6)
TOOLS = st.sampled_from(
    [
        "Edit",
        "Write",
        "apply_patch",
        "TodoWrite",
        "AskUserQuestion",
        "ExitPlanMode",
        "elicitation",
        "mcp__x__elicitation",
        "x",
    ]
)


@given(TOOLS, INPUT, st.text())
def test_a_call_of_any_input_is_shown(name: str, arguments: dict[str, Any], output: str) -> None:
    shown(UpdateMaker("/w"), enveloped([ToolUse("c", name, arguments), ToolResult("c", output)]))


@given(TOOLS, INPUT, JSON)
def test_an_approval_of_any_input_is_asked_and_any_answer_read(
    name: str, arguments: dict[str, Any], result: Any
) -> None:
    approval = ApprovalRequested("1:a", name, arguments)
    dialog = questions.dialog_of(approval, tool_call("t1.c", name, arguments, "/w"))
    for params in dialog.permissions:
        schema.RequestPermissionRequest.model_validate({"sessionId": "s", **params})
        questions.answer_of_permission(dialog, result)
        questions.goes_on(result)
    if dialog.kind == "questions":
        questions.answer_of_choices(approval, [result] * len(dialog.permissions))
    if dialog.form is not None:
        json.dumps(dialog.form)
        for answer in (result, {"action": "accept", "content": result}):
            questions.answer_of_form(dialog, approval, answer)


@given(
    st.lists(JSON | st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "resource", "resource_link"])}))
)
def test_a_prompt_of_any_blocks_is_sent_or_refused(blocks: list[Any]) -> None:
    try:
        prompt = prompts.prompt_of(blocks)
    except UsageError:
        return
    prompts.command_of(prompt)


@given(st.text(), st.text())
def test_plans_and_stored_prompts_of_any_text_are_shown(plan: str, stored: str) -> None:
    prompt = PromptAccepted(delivery="delivered", blob="prompt-1", text=stored)
    shown(UpdateMaker("/w"), enveloped([BackendStatus("plan", plan), prompt, TurnStarted(1)]))


@given(
    st.lists(
        JSON | st.dictionaries(st.sampled_from(["name", "url", "command", "args", "env", "headers", "type"]), JSON)
    )
)
def test_mcp_servers_of_any_shape_are_left_to_the_daemon(servers: list[Any]) -> None:
    json.dumps(settings.mcp_config(servers))
