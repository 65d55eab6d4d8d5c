"""JSON of an exported session: one object, written part by part. docs/how-to/export.md describes its shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from clisup.cli.export.parts import (
    Call,
    CallResult,
    Note,
    Part,
    PromptText,
    SaidText,
    SessionHead,
    Text,
    TurnBegin,
    TurnEnd,
)
from clisup.client.raw import JsonObject

__all__ = ["FORMAT", "VERSION", "write_json"]

FORMAT, VERSION = "clisup-export", 1

_SESSION = (
    "session_id", "title", "backend", "model", "cwd", "branch", "labels", "created_at", "native_session_id", "state", "turns",
    "tokens", "cost_usd", "cost_source",
)  # fmt: skip
_END = (
    "outcome", "stop_reason", "error", "denied", "duration_s", "usage", "cost_usd", "cost_source", "structured", "delivery",
)  # fmt: skip


def write_json(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the pieces of the document. Events between two turns are in an entry whose `turn_id` is null."""
    open_turn, first_turn, first_item = False, True, True
    for part in parts:
        match part:
            case SessionHead():
                yield _dump(_head(part))[:-1] + ', "turns": ['
                continue
            case TurnBegin():
                yield _close(open_turn) + _begin(part, first=first_turn)
                open_turn, first_turn, first_item = True, False, True
                continue
            case TurnEnd() if open_turn:
                yield f'], "end": {_dump(_end(part))}}}'
                open_turn = False
                continue
        if not open_turn:
            yield _begin(TurnBegin("", "", None), first=first_turn)
            open_turn, first_turn, first_item = True, False, True
        yield ("\n" if first_item else ",\n") + _dump(_item(part))
        first_item = False
    yield _close(open_turn) + "\n]}\n"


def _close(open_turn: bool) -> str:
    return '], "end": null}' if open_turn else ""


def _begin(part: TurnBegin, *, first: bool) -> str:
    begin = {
        "turn_id": part.turn_id or None,
        "started_at": part.at or None,
        "prompt": None if part.prompt is None else _prompt(part.prompt),
    }
    return ("\n" if first else ",\n") + _dump(begin)[:-1] + ', "items": ['


def _head(part: SessionHead) -> JsonObject:
    session = {name: part.session.get(name) for name in _SESSION}
    return {"format": FORMAT, "version": VERSION, "exported_at": part.at, "session": session}


def _prompt(part: PromptText) -> JsonObject:
    return {**part.body.to_json(), "images": part.images}


def _end(part: TurnEnd) -> JsonObject:
    return {"ended_at": part.event.get("ts"), **{name: part.event.get(name) for name in _END}}


def _item(part: Part) -> JsonObject:
    match part:
        case PromptText():
            return {"type": "prompt", **_prompt(part)}
        case SaidText():
            return {"type": part.kind, **part.body.to_json(), "subagent": part.subagent}
        case Call():
            named = {"type": "tool_use", "tool_use_id": part.tool_use_id, "name": part.name}
            return {**named, "input": part.body.to_json(), "diff": _diff(part.diff), "subagent": part.subagent}
        case CallResult():
            named = {"type": "tool_result", "tool_use_id": part.tool_use_id, "name": part.name}
            more = {"is_error": part.is_error, "diff": _diff(part.diff), "subagent": part.subagent}
            return {**named, **part.body.to_json(), **more}
        case TurnEnd():
            return {"type": "turn_completed", "turn_id": part.event["turn_id"], **_end(part)}
        case Note():
            return {"type": "note", "kind": part.kind, "at": part.at or None, "text": part.text}
    raise AssertionError(part)


def _diff(diff: Text | None) -> JsonObject | None:
    return None if diff is None else diff.to_json()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
