"""Events become updates of the protocol: each text once, tools with their changes, prompts of others."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from updates_kit import enveloped, shown, text_of, updates_of

from clisup.client.events import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantMessage,
    BackendRetry,
    BackendStatus,
    Block,
    ContentDelta,
    Gap,
    Notice,
    PromptAccepted,
    Retracted,
    SessionInit,
    StderrLine,
    ToolResult,
    ToolUse,
    TurnCompleted,
    TurnError,
    TurnStarted,
)
from clisup.doors.acp.updates import MAX_OUTPUT_CHARS, UpdateMaker


def said(text: str, id_: str = "m", **more: object) -> AssistantMessage:
    return AssistantMessage(message_id=id_, blocks=(Block(kind="text", text=text),), **more)  # type: ignore[arg-type]


def delta(text: str, id_: str = "m", **more: object) -> ContentDelta:
    return ContentDelta(kind="text", text=text, message_id=id_, **more)  # type: ignore[arg-type]


@given(st.lists(st.text(min_size=1), min_size=1), st.integers(min_value=0))
def test_a_message_is_told_once_however_much_of_it_was_streamed(pieces: list[str], streamed: int) -> None:
    whole = "".join(pieces)
    some = pieces[: streamed % (len(pieces) + 1)]
    assert text_of(updates_of(*map(delta, some), said(whole), delta("next"))) == whole + "next"


def test_blocks_of_one_message_are_told_one_after_the_other() -> None:
    one, two = said("One. "), said("Two.")
    assert text_of(updates_of(delta("One. "), one, delta("Two."), two)) == "One. Two."
    both = AssistantMessage(message_id="m", blocks=(*one.blocks, *two.blocks))
    assert text_of(updates_of(delta("One. Two."), both)) == "One. Two."


def test_a_trimmed_message_is_not_told_again() -> None:
    assert text_of(updates_of(delta(" Hello. \n"), said("Hello."), said("Next."))) == " Hello. \nNext."


def test_sub_agents_are_seen_by_their_tools_alone() -> None:
    updates = updates_of(
        delta("inside", parent_tool_use_id="a"),
        said("inside", parent_tool_use_id="a"),
        ToolUse("b", "Read", {"file_path": "/x"}, parent_tool_use_id="a"),
    )
    (call,) = updates
    assert call["_meta"] == {"clisup": {"parentToolCallId": "t1.a"}}


def test_a_turn_that_says_nothing_has_its_final_text() -> None:
    assert text_of(updates_of(TurnStarted(1), TurnCompleted("completed", text="42"))) == "42"
    assert text_of(updates_of(said("42"), TurnCompleted("completed", text="42"))) == "42"


def test_a_failed_turn_is_told_to_those_who_did_not_ask() -> None:
    end = TurnCompleted("failed", error=TurnError("overloaded", "too many"))
    accepted = PromptAccepted(key="mine", delivery="delivered")
    assert "The turn failed: too many" in text_of(updates_of(accepted, end))
    assert text_of(shown(UpdateMaker("/w", {"mine"}), enveloped([accepted, end]))) == ""


def test_prompts_of_others_appear_at_the_beginning_of_their_turn() -> None:
    prompt = PromptAccepted(key="k", delivery="queued", text="Hello")
    maker = UpdateMaker("/w")
    accepted, started = enveloped([prompt, TurnStarted(1, prompt_preview="Hello")])
    assert shown(maker, [accepted]) == []
    assert text_of(shown(maker, [started]), "user_message_chunk") == "Hello"


def test_steered_prompts_appear_at_once_and_duplicates_never() -> None:
    steered = PromptAccepted(key="k", delivery="steered", text="Left!", prompt_id="p")
    assert text_of(updates_of(steered), "user_message_chunk") == "Left!"
    assert updates_of(PromptAccepted(key="k", delivery="duplicate", text="Hello"), TurnStarted(1)) == []


def test_a_prompt_that_is_not_kept_has_its_preview() -> None:
    started = TurnStarted(1, prompt_preview="Hel…")
    assert text_of(updates_of(PromptAccepted(delivery="delivered"), started), "user_message_chunk") == "Hel…"


def test_a_whole_prompt_has_its_images() -> None:
    blocks = [{"type": "text", "text": "See"}, {"type": "image", "media_type": "image/png", "data": "AAAA"}]
    prompt = PromptAccepted(delivery="delivered", blob="prompt-1", text=json.dumps(blocks))
    first, second = updates_of(prompt, TurnStarted(1))
    assert first["content"]["text"] == "See"
    assert second["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    broken = PromptAccepted(delivery="delivered", blob="prompt-1", text="no json")
    assert text_of(updates_of(broken, TurnStarted(1)), "user_message_chunk") == "no json\n[...]"


def test_a_call_has_kind_files_and_changes_and_its_result_keeps_them() -> None:
    edit = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
    call, done = updates_of(ToolUse("c", "Edit", edit), ToolResult("c", "ok"))
    assert (call["kind"], call["locations"]) == ("edit", [{"path": "/w/a.py"}])
    assert call["content"] == [{"type": "diff", "path": "/w/a.py", "oldText": "x", "newText": "y"}]
    assert done == {"sessionUpdate": "tool_call_update", "toolCallId": "t1.c", "status": "completed"}
    _, failed = updates_of(ToolUse("c", "Edit", edit), ToolResult("c", "no such text", is_error=True))
    assert failed["status"] == "failed" and failed["content"][0]["content"]["text"] == "no such text"


def test_calls_of_two_turns_never_share_an_id() -> None:
    one, two = (updates_of(ToolUse("call-1", "Bash"), turn_id=turn)[0] for turn in ("t1", "t2"))
    assert one["toolCallId"] != two["toolCallId"]


def test_long_output_is_cut_and_images_come_whole() -> None:
    image = Block(kind="image", data="AAAA", media_type="image/jpeg")
    (update,) = updates_of(ToolResult("c", "x" * (MAX_OUTPUT_CHARS + 1), blocks=(image,)))
    text, shown_image = (part["content"] for part in update["content"])
    assert len(text["text"]) == MAX_OUTPUT_CHARS + len("\n[...]")
    assert shown_image["mimeType"] == "image/jpeg"


def test_the_change_of_an_acp_agent_is_a_change() -> None:
    block = Block(kind="other", native_kind="diff", input={"path": "/a", "oldText": "x", "newText": "y"})
    (update,) = updates_of(ToolResult("c", "", blocks=(block,)))
    assert update["content"] == [{"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}]


def test_a_call_without_a_result_fails_with_its_turn() -> None:
    updates = updates_of(ToolUse("c", "Bash"), TurnCompleted("interrupted"))
    assert updates[-1]["status"] == "failed"


def test_an_approval_holds_its_call() -> None:
    ask = ApprovalRequested("1:a", "Bash", {"command": "ls"}, tool_use_id="c")
    maker = UpdateMaker("/w")
    events = [ToolUse("c", "Bash"), ask, ApprovalResolved(approval_id="1:a", decision="allow")]
    use, asked, resolved = enveloped(events)
    assert shown(maker, [use, asked])[-1]["status"] == "pending"
    assert maker.open_approvals == {"1:a": ask}
    assert shown(maker, [resolved])[-1]["status"] == "in_progress"
    assert maker.open_approvals == {}


def test_plans_of_other_backends_are_plans() -> None:
    (codex,) = updates_of(BackendStatus("todo_list", "[x] Look\n[ ] Change"))
    assert [(e["content"], e["status"]) for e in codex["entries"]] == [("Look", "completed"), ("Change", "pending")]
    (agent,) = updates_of(BackendStatus("plan", "[in_progress] Look"))
    assert agent["entries"][0]["status"] == "in_progress"


def test_settings_follow_the_events() -> None:
    maker = UpdateMaker("/w")
    events = [
        SessionInit(model="big", permission_mode="plan"),
        SessionInit(model="big", permission_mode="plan"),
        Notice("permission_mode_set", "...", data={"value": "default"}),
        Notice("model_set", "...", data={"value": "small"}),
    ]
    updates = shown(maker, enveloped(events))
    assert [u["currentModeId"] for u in updates] == ["plan", "default"]
    assert (maker.mode, maker.model) == ("default", "small")


def test_retries_retractions_and_gaps_are_told() -> None:
    retry = BackendRetry(attempt=2, error=TurnError("overloaded", "busy"))
    assert text_of(updates_of(retry), "agent_thought_chunk") == "The model is asked again (try 2): busy\n"
    assert "withdrawn (refused)" in text_of(updates_of(delta("x"), Retracted("m", 0, "refused")))
    assert "Events 1 to 9 are missing" in text_of(updates_of(Gap(1, 9, "retention")))
    assert updates_of(StderrLine("noise")) == []
