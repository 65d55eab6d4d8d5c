"""Every recording of every CLI as an editor sees it: in the schema's form, and each text once, live and in a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from updates_kit import enveloped, shown, text_of

from clisup.client.events import AssistantMessage, BackendRetry, ContentDelta, Retracted, ToolResult, ToolUse
from clisup.doors.acp.updates import UpdateMaker
from tests.backends.recorded import PATHS, Recording, name_of


@pytest.fixture(scope="module", params=PATHS, ids=name_of)
def events(request: pytest.FixtureRequest) -> list[Any]:
    path: Path = request.param
    return list(Recording(path).events())


def spoken(events: list[Any], kind: str) -> str:
    return "".join(
        block.text or ""
        for event in events
        if isinstance(event, AssistantMessage) and event.parent_tool_use_id is None
        for block in event.blocks
        if block.kind == kind
    )


@pytest.mark.parametrize(("kind", "chunk"), [("text", "agent_message_chunk"), ("thinking", "agent_thought_chunk")])
def test_live_and_replayed_events_tell_each_text_once(events: list[Any], kind: str, chunk: str) -> None:
    events = [event for event in events if not isinstance(event, BackendRetry)]  # an editor sees these as thoughts
    said = spoken(events, kind)
    replayed = text_of(shown(UpdateMaker("/w"), enveloped(e for e in events if not isinstance(e, ContentDelta))), chunk)
    live = text_of(shown(UpdateMaker("/w"), enveloped(events)), chunk)
    if any(isinstance(event, Retracted) for event in events):
        assert "withdrawn" in replayed or chunk != "agent_message_chunk"
        return
    assert replayed == said
    streamed = "".join(
        e.text for e in events if isinstance(e, ContentDelta) and e.kind == kind and e.parent_tool_use_id is None
    )
    assert live == (said or streamed)  # a turn that was killed has pieces of a message alone


def test_every_call_is_shown_and_ends(events: list[Any]) -> None:
    updates = shown(UpdateMaker("/w"), enveloped(events))
    begun = [u["toolCallId"] for u in updates if u["sessionUpdate"] == "tool_call"]
    uses = [e.tool_use_id for e in events if isinstance(e, ToolUse)]
    assert [id_.removeprefix("t1.") for id_ in begun] == uses
    ended = {u["toolCallId"] for u in updates if u.get("status") in ("completed", "failed")}
    assert {f"t1.{e.tool_use_id}" for e in events if isinstance(e, ToolResult)} <= ended
