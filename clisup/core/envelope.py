"""The envelope of an event: its bytes, made once, and reading them again. Pure."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from clisup.core.events import Event, EventBase

__all__ = ["Envelope", "encode_event", "parse_event", "writable"]

_DEEPEST = 100  # pydantic writes 255 levels, a decoder reads about 1,000


class Envelope(BaseModel):
    """An event as a client sees it, parsed: the envelope's fields and the event itself."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: Literal["backend", "daemon"]
    event: EventBase


def encode_event(event: EventBase, *, session_id: str, seq: int, ts: str, turn_id: str | None, source: str) -> bytes:
    """The bytes of an envelope: made once, stored once, and sent as they are to every client.

    `session_id`, `ts`, `turn_id` and `source` are the daemon's own and hold no character that JSON escapes.
    """
    try:
        body: bytes = event.__pydantic_serializer__.to_json(event, exclude_none=True)
    except PydanticSerializationError:
        body = event.__pydantic_serializer__.to_json(writable(event), exclude_none=True)
    turn = f'"{turn_id}"' if turn_id else "null"
    head = f'{{"session_id":"{session_id}","seq":{seq},"ts":"{ts}","turn_id":{turn},"source":"{source}","type":"{event.type}"'
    rest = _without_type(body, event.type)
    return head.encode() + rest


def writable(value: Any, depth: int = 0) -> Any:
    """What JSON can hold: half a surrogate pair becomes `?`, what lies deeper than `_DEEPEST` a word that says so.

    The CLI's own line still has all of it (`raw: true`).
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, BaseModel):
        fields = {name: writable(getattr(value, name), depth + 1) for name in type(value).model_fields}
        return value.model_copy(update=fields)
    if isinstance(value, dict | list | tuple) and depth >= _DEEPEST:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {writable(key): writable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(writable(item, depth + 1) for item in value)
    return value


def _without_type(body: bytes, type_: str) -> bytes:
    """`type` is the first field of each model, so it is cut from the front and written once, in the envelope."""
    return body[len(b'{"type":""') + len(type_) :]


def parse_event(raw: bytes | str | dict[str, Any]) -> Envelope:
    """Read an envelope. Raises pydantic's ValidationError where it is not one of ours."""
    fields = raw if isinstance(raw, dict) else json.loads(raw)
    head = {name: fields.get(name) for name in ("session_id", "seq", "ts", "turn_id", "source")}
    return Envelope.model_validate({**head, "event": _adapter().validate_python(fields)})


@cache
def _adapter() -> TypeAdapter[EventBase]:
    """Made when an event is first read, which a daemon never does: it takes 30 ms."""
    return TypeAdapter(Event)
