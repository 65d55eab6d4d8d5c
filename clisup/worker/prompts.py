"""Lines of stream-json on stdin, and the queue of user messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clisup.worker import JsonObject

_ORDER = {"now": 0, "next": 1, "later": 2}


class BadInput(Exception):
    """Line that is no message. As in claude, the process prints the text on stderr and exits with code 1."""


@dataclass(frozen=True)
class Prompt:
    """User message with blocks of the Anthropic API. `asked` may have `schema`, `sampling` and the caller's `tools`."""

    uuid: str | None
    content: list[JsonObject]
    priority: str = "next"
    asked: Mapping[str, Any] = field(default_factory=dict)


def read_line(line: bytes) -> JsonObject:
    """Return the object on a line, or an empty one for a line to ignore. Raises `BadInput`."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return {}
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"Error parsing streaming input line (type=unknown, {len(text)} chars): SyntaxError") from None
    return frame if isinstance(frame, dict) else {}


def read_prompt(frame: Mapping[str, Any]) -> Prompt:
    """Return a user message. Raises `BadInput` for another role than `user`."""
    message = frame.get("message")
    message = message if isinstance(message, dict) else {}
    if message.get("role") != "user":
        raise BadInput(f"Error: Expected message role 'user', got '{message.get('role')}'")
    given = message.get("content")
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    content = [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
    uuid, priority, asked = frame.get("uuid"), frame.get("priority"), frame.get("asked")
    return Prompt(
        uuid if isinstance(uuid, str) else None,
        content,
        priority if priority in _ORDER else "next",
        asked if isinstance(asked, dict) else {},
    )


class WorkerQueue:
    """Waiting messages, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: list[Prompt] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, prompt: Prompt) -> None:
        """Append a message."""
        self._waiting.append(prompt)

    def take_next(self) -> list[Prompt]:
        """Remove and return the most urgent messages that ask for the same kind of answer."""
        first = min(self._waiting, key=lambda prompt: _ORDER[prompt.priority])
        return self._take(lambda prompt: prompt.priority == first.priority and prompt.asked == first.asked)

    def take_steering(self) -> list[Prompt]:
        """Remove and return the messages for the running turn: all but those with priority `later`."""
        return self._take(lambda prompt: prompt.priority != "later")

    def take_all(self) -> list[Prompt]:
        """Remove and return all messages."""
        return self._take(lambda _: True)

    def withdraw(self, uuid: Any) -> Prompt | None:
        """Remove and return the message with this id, or None."""
        return next(iter(self._take(lambda prompt: prompt.uuid is not None and prompt.uuid == uuid)), None)

    def uuids(self) -> list[str]:
        """Return the ids of the waiting messages."""
        return [prompt.uuid for prompt in self._waiting if prompt.uuid]

    def _take(self, wanted: Callable[[Prompt], bool]) -> list[Prompt]:
        taken = [prompt for prompt in self._waiting if wanted(prompt)]
        self._waiting = [prompt for prompt in self._waiting if not wanted(prompt)]
        return taken
