"""Conversations with tools of the program's own: every real CLI gives the same nodes, and what a tool keeps outlives an edit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from clisup.backends.contract import essence, frame_faults
from clisup.llm.conversation import Conversation, DropCompletedToolCalls, Step, ToolInteraction
from clisup.llm.memory import WorkingMemory
from clisup.llm.models import Model, resolve
from tests.e2e.tools.stage import ADD, FAIL, KINDS, REAL, TWO_TEXTS, Stage

pytestmark = pytest.mark.e2e
Start = Callable[..., Stage]
BOUND_S = 180.0
SCRIPT = [[("add", {"a": 2, "b": 3}), ("fail", {})], [("two_texts", {})]]
SAME: list[list[tuple[str, dict[str, Any], str, bool]]] = [
    [("add", {"a": 2, "b": 3}, "5", False), ("fail", {}, "it went wrong", True)],
    [("two_texts", {}, "one\ntwo", False)],
]


def model(here: Stage) -> Model:
    return resolve(here.lab.backend, socket=here.lab.socket, cwd=str(here.lab.cwd), **here.options)


def essences(steps: tuple[Step, ...]) -> list[list[tuple[str, dict[str, Any], str, bool]]]:
    return [sorted((call.essence for call in step.calls), key=str) for step in steps if step.calls]


def flat(steps: list[list[tuple[str, dict[str, Any], str, bool]]]) -> list[tuple[str, dict[str, Any], str, bool]]:
    return sorted((call for step in steps for call in step), key=str)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_cli_gives_the_same_nodes_for_the_same_calls(stage: Start, kind: str) -> None:
    here = stage(kind, SCRIPT)
    with trio.fail_after(BOUND_S):
        async with Conversation(model(here), tools=[ADD, FAIL, TWO_TEXTS]) as conversation:
            turn = await conversation.send(here.prompt)
    assert all(isinstance(call, ToolInteraction) and call.ours and call.at and call.ended_at for call in turn.calls)
    got = essences(turn.steps)
    if kind.startswith("codex"):  # calls come outside of messages: what makes a step, and its order, is when they ran
        assert flat(got) == flat(SAME)
    else:
        assert got == SAME
    assert (turn.text, turn.outcome) == ("Done.", "completed")


SEQUENCE = ["session_init", "tool_use", "tool_result:ok", "tool_use", "tool_result:error", "text", "completed"]
TYPES = ["prompt_accepted", "turn_started", "process_started", "session_init", "message_start", "content_delta", "message",
         "tool_use", "tool_result", "message_start", "content_delta", "message", "tool_use", "tool_result", "message_start",
         "content_delta", "message", "turn_completed"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
async def test_one_script_gives_one_sequence_of_events(stage: Start, kind: str) -> None:
    """codex tells calls outside of messages. All others give the same types of events in the same order.

    claude (2.1.330) may have a tool's result before it prints the end of the message: one `message_stop` follows each message.
    """
    here = stage(kind, [[("add", {"a": 2, "b": 3})], [("fail", {})]])
    events = await trio.to_thread.run_sync(here.turn, ADD, FAIL)
    assert essence(events) == SEQUENCE
    assert frame_faults(events) == []
    types = [event["type"] for event in events if event["type"] in TYPES]
    collapsed = [name for at, name in enumerate(types) if at == 0 or types[at - 1] != name]
    if not kind.startswith("codex"):
        assert collapsed == TYPES
        ends = [event["type"] for event in events if event["type"] in ("message_start", "message_stop")]
        assert ends == ["message_start", "message_stop"] * 3


@pytest.mark.parametrize("kind", REAL)
async def test_what_the_model_has_noted_outlives_the_edit_that_forgets_the_noting(stage: Start, kind: str) -> None:
    note = ("memory", {"operation": "set", "key": "plan", "value": "free the disk"})
    here = stage(kind, [[note], [("memory", {"operation": "query", "prefix": "pl"})]])
    memory = WorkingMemory()
    with trio.fail_after(BOUND_S):
        policies = [DropCompletedToolCalls(keep_turns=0)]
        async with Conversation(model(here), memory=memory, policies=policies) as conversation:
            first = await conversation.send("Note it, and read it again.")
            assert [call.essence[2] for call in first.calls] == ["kept plan", '{"plan": "free the disk"}']
            await conversation.send("What is left to do?")
    assert memory.get("plan") == "free the disk"
    assert conversation.chats_opened == 2
    body = json.dumps(here.lab.api.main_requests[-1].body)  # type: ignore[attr-defined]
    assert "It holds: plan." in body and "What is left to do?" in body
    assert "kept plan" not in body and "free the disk" not in body
