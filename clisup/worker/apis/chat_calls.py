"""Tool calls of a Chat Completions answer, from pieces in the shapes of many servers. Pure.

A call's name, id and arguments may come in any piece. Some servers repeat id and name in each piece, give all calls the same
index, change the id from piece to piece, or give neither id nor index.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clisup.worker.apis.events import AnswerBuilder, Event

__all__ = ["ChatCalls"]

_KNOWN = ("id", "index", "type", "function")
_EMPTY = "{}"


@dataclass
class _Call:
    key: str
    id: str = ""
    name: str = ""
    arguments: str = ""
    begun: bool = False
    sent: int = 0
    """Characters of the arguments that were told."""
    opaque: dict[str, Any] = field(default_factory=dict)
    """Fields that the server may need back, such as the signature of Gemini."""

    @property
    def is_whole(self) -> bool:
        """Tell whether the arguments are whole."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except ValueError:
            return False


class ChatCalls:
    """Calls of one answer. `take` each piece, then `finish`."""

    def __init__(self, answer: AnswerBuilder) -> None:
        self._answer = answer
        self._calls: list[_Call] = []
        self._at: dict[str, _Call] = {}  # the newest call of each index

    @property
    def opaque(self) -> dict[str, Event]:
        """Return the opaque fields of the calls, by their ids."""
        return {call.id: call.opaque for call in self._calls if call.opaque}

    def take(self, piece: Mapping[str, Any]) -> list[Event]:
        """Return the events of one piece. A call begins with its name, and waits a moment for its id."""
        function = piece.get("function") or {}
        call = self._call_of(piece, str(function.get("name") or ""))
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        given = function.get("arguments") or ""
        text = given if isinstance(given, str) else json.dumps(given)
        # Some servers begin with an empty object, and then send the whole arguments.
        call.arguments = text if call.arguments.strip() == _EMPTY and text.strip() else call.arguments + text
        call.opaque |= {name: value for name, value in piece.items() if name not in _KNOWN and value is not None}
        return self._tell(call) if call.name and (call.id or call.arguments) else []

    def finish(self) -> list[Event]:
        """Return the events of what was not told yet."""
        events: list[Event] = []
        for call in self._calls:
            events += self._tell(call, whole=True)
        return events

    def _call_of(self, piece: Mapping[str, Any], name: str) -> _Call:
        index, call_id = str(piece.get("index") or 0), str(piece.get("id") or "")
        call = self._at.get(index)
        if call is not None and not (name and _is_another(call, call_id, name, has_index="index" in piece)):
            return call
        call = self._at[index] = _Call(f"{index}.{len(self._calls)}")
        self._calls.append(call)
        return call

    def _tell(self, call: _Call, *, whole: bool = False) -> list[Event]:
        events: list[Event] = []
        if not call.begun:
            call.begun = True
            call.id = self._own_id(call)
            events = self._answer.tool(call.key, call.id, call.name)
        if call.arguments.strip() == _EMPTY and not whole:
            return events
        told, call.sent = call.arguments[call.sent :], len(call.arguments)
        return [*events, *self._answer.arguments(call.key, told)]

    def _own_id(self, call: _Call) -> str:
        """Return the id of a call. One without an id, or with that of another call of the answer, gets an id of its own."""
        taken = {other.id for other in self._calls if other.begun and other is not call}
        if call.id and call.id not in taken:
            return call.id
        return f"{call.id}_{call.key}" if call.id else f"call_{self._answer.message_id}_{call.key}"


def _is_another(call: _Call, call_id: str, name: str, *, has_index: bool) -> bool:
    """Tell whether a piece with a name begins another call at the place of this one."""
    if call_id and call.id:
        return call_id != call.id
    if call.name and name != call.name:
        return True
    return not call_id and not has_index and call.is_whole
