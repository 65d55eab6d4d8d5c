"""Envelope of an event: its bytes, made once, and its parser. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from clisup.model.deltas import Delta
from clisup.model.events import Event, EventBase

__all__ = ["Envelope", "Envelopes", "encode_event", "parse_event", "writable"]

_encode = msgspec.json.Encoder().encode
_DEEPEST = 100  # pydantic writes 255 levels, a decoder reads about 1,000


class Envelope(BaseModel):
    """Event as a client sees it, parsed: the envelope's fields and the event itself."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    session_id: str
    seq: int
    ts: str
    turn_id: str | None
    source: Literal["backend", "daemon"]
    event: EventBase


class Envelopes:
    """Encoder of the envelopes of one session at one time.

    The bytes are made once, stored once, and sent unchanged to every client. `session_id`, `ts`, `turn_id` and `source`
    are the daemon's own and hold no character that JSON escapes. The common parts of a batch are formatted once.
    """

    __slots__ = ("_begin", "_heads", "_ts")

    def __init__(self, session_id: str, ts: str) -> None:
        self._begin = f'{{"session_id":"{session_id}","seq":'.encode()
        self._ts = ts
        self._heads: dict[tuple[str, str | None, str], tuple[bytes, int]] = {}

    def encode(self, event: EventBase, seq: int, turn_id: str | None, source: str) -> bytes:
        """Return the bytes of one envelope."""
        try:
            body: bytes = event.__pydantic_serializer__.to_json(event, exclude_none=True)
        except PydanticSerializationError:
            body = event.__pydantic_serializer__.to_json(writable(event), exclude_none=True)
        key = (event.type, turn_id, source)
        head, at = self._heads.get(key) or self._head(key)
        return b"%b%d%b%b" % (self._begin, seq, head, body[at:])

    def encode_deltas(self, deltas: Iterable[Delta], first_seq: int, turn_id: str | None) -> list[bytes]:
        """Return the envelopes of a row of deltas.

        Their strings hold no half of a surrogate pair: the decoder refuses it.
        """
        begin, head = self._begin, self._head(("content_delta", turn_id, "backend"))[0] + b","
        return [b"%b%d%b%b" % (begin, seq, head, _encode(delta)[1:]) for seq, delta in enumerate(deltas, first_seq)]

    def _head(self, key: tuple[str, str | None, str]) -> tuple[bytes, int]:
        """Return the encoded head for this type, turn and source, and the length to cut from the body.

        `type` is the first field of each model, so the body's own `type` is cut off and written here once.
        """
        type_, turn_id, source = key
        turn = f'"{turn_id}"' if turn_id else "null"
        head = f',"ts":"{self._ts}","turn_id":{turn},"source":"{source}","type":"{type_}"'.encode()
        made = self._heads[key] = (head, len(b'{"type":""') + len(type_))
        return made


def encode_event(event: EventBase, *, session_id: str, seq: int, ts: str, turn_id: str | None, source: str) -> bytes:
    """Return the bytes of one envelope."""
    return Envelopes(session_id, ts).encode(event, seq, turn_id, source)


def writable(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can hold: half a surrogate pair becomes `?`, values deeper than `_DEEPEST` become a
    short note.

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


def parse_event(raw: bytes | str | dict[str, Any]) -> Envelope:
    """Read an envelope. Raises pydantic's ValidationError for any other data."""
    fields = raw if isinstance(raw, dict) else json.loads(raw)
    head = {name: fields.get(name) for name in ("session_id", "seq", "ts", "turn_id", "source")}
    return Envelope.model_validate({**head, "event": _adapter().validate_python(fields)})


@cache
def _adapter() -> TypeAdapter[EventBase]:
    """Return the adapter of all events, made at the first parsed event.

    A daemon never parses one, and the adapter takes 30 ms.
    """
    return TypeAdapter(Event)
