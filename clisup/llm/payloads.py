"""Payloads that were too large for their events are fetched, so that a reader sees each event whole."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from msgspec import structs

from clisup.client.events import (
    AssistantMessage,
    Block,
    ContentDelta,
    Envelope,
    TaskUpdate,
    ToolResult,
    ToolUse,
    TurnCompleted,
)

__all__ = ["Fetch", "whole"]

Fetch = Callable[[str], Awaitable[bytes]]
"""The whole of a payload by the `blob` that names it: `AsyncSession.blob`."""

# event -> the field whose whole is in its `blob`
_FIELDS: dict[type, str] = {
    ContentDelta: "text",
    TaskUpdate: "report",
    ToolUse: "input",
    ToolResult: "content",
    TurnCompleted: "text",
}


async def whole(envelope: Envelope, fetch: Fetch) -> Envelope:
    """The envelope with every payload in place. Nearly always that is the envelope itself, and nothing is asked."""
    event: Any = envelope.event
    updates: dict[str, Any] = {}
    name = _FIELDS.get(type(event))
    if name is not None and event.blob is not None:
        updates[name] = _value(name, await fetch(event.blob))
    if isinstance(event, AssistantMessage | ToolResult) and any(block.blob for block in event.blocks or ()):
        updates["blocks"] = tuple([await _block(block, fetch) for block in event.blocks or ()])
    return replace(envelope, event=structs.replace(event, **updates)) if updates else envelope


async def _block(block: Block, fetch: Fetch) -> Block:
    if block.blob is None:
        return block
    name = "input" if block.input is not None else "data" if block.data is not None else "text"
    return structs.replace(block, **{name: _value(name, await fetch(block.blob))})


def _value(name: str, payload: bytes) -> Any:
    text = payload.decode("utf-8", "replace")
    if name != "input":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # nested too deeply: its head says so
        return {"_head": text}
