"""Typed events for clients: each is an `Envelope` around one of the classes of `clisup.model.events`, which are all here too.

    match envelope.event:
        case ContentDelta(kind="text", text=text):
            print(text, end="")
        case TurnCompleted(outcome=outcome):
            print(outcome)

An unknown event of a newer daemon becomes an `UnknownEvent` with its fields, never an exception. A `Gap` reports removed events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from clisup.client.raw import JsonObject
from clisup.model.events import *  # noqa: F403  one place to import any event from
from clisup.model.events import EVENT_CLASSES, Event

__all__ = ["AnyEvent", "Envelope", "Gap", "UnknownEvent", "envelope_of"]  # and what `clisup.model.events` names

_ENVELOPE = frozenset(["session_id", "seq", "ts", "turn_id", "source", "native", "type"])


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """Event with a type or a value that this version of clisup does not know. `fields` are as received."""

    type: str
    fields: JsonObject


@dataclass(frozen=True, slots=True)
class Gap:
    """Report that the events `from_seq` to `to_seq` are gone. `reason` is `retention` or `damaged`."""

    from_seq: int
    to_seq: int
    reason: str
    type: str = "gap"


AnyEvent = Event | UnknownEvent | Gap


@dataclass(frozen=True, slots=True)
class Envelope:
    """Event with its session, seq and time. The `seq` of a gap is its last one; a gap has no `ts`.

    `seq` counts from 1 in each session, and is the `after_seq` of the next subscription. `ts` is RFC 3339 in UTC. `turn_id`
    is None outside a turn. `source` is `backend` for events of the CLI, `daemon` for clisup's own. `native` is the CLI's own
    line, with `raw=True`.
    """

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: str
    event: AnyEvent
    native: str | None = field(default=None, repr=False)


def envelope_of(raw: Mapping[str, Any]) -> Envelope:
    """Convert an event or a gap from its dict."""
    if raw["type"] == "gap":
        gap = Gap(raw["from_seq"], raw["to_seq"], str(raw.get("reason", "")))
        return Envelope(raw["session_id"], gap.to_seq, "", None, "daemon", gap)
    native = raw.get("native")
    return Envelope(
        raw["session_id"], raw["seq"], raw["ts"], raw.get("turn_id"), raw["source"], _event_of(raw),
        native if native is None else str(native),
    )  # fmt: skip


def _event_of(raw: Mapping[str, Any]) -> AnyEvent:
    try:
        return cast("Event", msgspec.convert(raw, EVENT_CLASSES[raw["type"]]))
    except (KeyError, msgspec.ValidationError):
        return UnknownEvent(str(raw["type"]), {name: value for name, value in raw.items() if name not in _ENVELOPE})
