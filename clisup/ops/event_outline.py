"""Outline of an event without private text: type, time, numbers and words of fixed lists.

All other text becomes its length. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from msgspec.structs import fields

from clisup.model.events import EVENT_CLASSES, TurnError, TurnErrorKind
from clisup.model.structs import JsonObject
from clisup.model.usage import Usage, UsageSource

_ENVELOPE = ("session_id", "seq", "ts", "turn_id", "source", "type")
_WORDS = {  # words of open lists: clisup's own, or those of the CLI's protocol
    "notice": ("code",),
    "watchdog": ("phase",),
    "process_exited": ("ended_by",),
    "turn_completed": ("stop_reason",),
    "rate_limit": ("status", "limit_type"),
    "session_init": ("backend_version",),
}
_WORD = re.compile(r"[A-Za-z0-9_.:-]{1,40}")
_NESTED = {  # objects whose members are clisup's own; members of other objects may hold any text
    "usage": frozenset(Usage.__struct_fields__),
    "error": frozenset(TurnError.__struct_fields__),
}


def _has_literal(annotation: Any) -> bool:
    return get_origin(annotation) is Literal or any(_has_literal(part) for part in get_args(annotation))


_LISTED = {
    type_: frozenset(item.name for item in fields(cls) if _has_literal(item.type))
    for type_, cls in EVENT_CLASSES.items()
}

_FIELDS = {type_: frozenset(cls.__struct_fields__) for type_, cls in EVENT_CLASSES.items()}


def outline(event: Mapping[str, Any]) -> JsonObject:
    """Return the event in a form that anybody may see. An event of an unknown type gives only its envelope."""
    type_ = str(event.get("type"))
    found = {name: event[name] for name in _ENVELOPE if name in event}
    if type_ not in _LISTED:
        return found | {"unknown": True, "type": type_ if _WORD.fullmatch(type_) else "?"}
    own = {name: value for name, value in event.items() if name not in _ENVELOPE and name in _FIELDS[type_]}
    return found | {name: _field(type_, name, value) for name, value in own.items()}


def _field(type_: str, name: str, value: Any) -> Any:
    if isinstance(value, str):
        plain = name in _LISTED[type_] or (name in _WORDS.get(type_, ()) and _WORD.fullmatch(value))
        return value if plain else {"chars": len(value)}
    if isinstance(value, Mapping) and name in _NESTED:
        return {key: _part(key, part) for key, part in value.items() if key in _NESTED[name]}
    return _part(name, value)


def _part(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if value in _LISTS.get(name, ()) else {"chars": len(value)}
    return {"members": len(value)} if isinstance(value, Mapping | list | tuple) else "?"


_LISTS = {"kind": frozenset(get_args(TurnErrorKind)), "source": frozenset(get_args(UsageSource))}
