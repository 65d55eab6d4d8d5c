"""Events as an editor sees them, checked against the schema of the official client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from acp import schema

from clisup.client.events import AnyEvent, Envelope
from clisup.doors.acp.updates import UpdateMaker


def enveloped(events: Iterable[Any], turn_id: str | None = "t1") -> list[Envelope]:
    return [Envelope("s", seq, "2026-01-01T00:00:00Z", turn_id, "backend", e) for seq, e in enumerate(events, 1)]


def shown(maker: UpdateMaker, envelopes: Iterable[Envelope]) -> list[dict[str, Any]]:
    """Return the updates of the events. Each fits the schema, and the schema knows all of its members."""
    updates = [update for envelope in envelopes for update in maker.take(envelope)]
    for update in updates:
        read = schema.SessionNotification.model_validate({"sessionId": "s", "update": update})
        known = read.update.model_dump(by_alias=True, exclude_unset=True, mode="json")
        assert set(known) == set(update), update
    return updates


def updates_of(*events: AnyEvent, cwd: str = "/w", turn_id: str | None = "t1") -> list[dict[str, Any]]:
    return shown(UpdateMaker(cwd), enveloped(events, turn_id))


def text_of(updates: Iterable[dict[str, Any]], kind: str = "agent_message_chunk") -> str:
    return "".join(u["content"].get("text", "") for u in updates if u["sessionUpdate"] == kind)
