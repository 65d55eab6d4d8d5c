"""What comes on stdin: lines of stream-json, and the user messages that wait for their turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BadInput", "Prompt", "Queue", "read_line", "read_prompt"]

_ORDER = {"now": 0, "next": 1, "later": 2}


class BadInput(Exception):
    """A line that is no message. The text is for stderr; the process ends with exit code 1, as claude does."""


@dataclass(frozen=True)
class Prompt:
    """One user message: blocks of the Anthropic API. `asked` is what its caller asked for of the answer: a schema, and sampling."""

    uuid: str | None
    content: list[dict[str, Any]]
    priority: str = "next"
    asked: Mapping[str, Any] = field(default_factory=dict)


def read_line(line: bytes) -> dict[str, Any]:
    """Return the object on a line; empty for what is ignored. Raises `BadInput`."""
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


class Queue:
    """Messages that wait, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: list[Prompt] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, prompt: Prompt) -> None:
        """Put a message at the end."""
        self._waiting.append(prompt)

    def take_next(self) -> list[Prompt]:
        """Take what has its turn: the most urgent messages, and of those all that ask for the same."""
        first = min(self._waiting, key=lambda prompt: _ORDER[prompt.priority])
        batch = [p for p in self._waiting if p.priority == first.priority and p.asked == first.asked]
        self._waiting = [prompt for prompt in self._waiting if prompt not in batch]
        return batch

    def take_in(self) -> list[Prompt]:
        """Take what a running turn takes in when it asks the model again: all but what is for later."""
        taken = [prompt for prompt in self._waiting if prompt.priority != "later"]
        self._waiting = [prompt for prompt in self._waiting if prompt.priority == "later"]
        return taken

    def withdraw(self, uuid: Any) -> Prompt | None:
        """Take a message out; None where none waits by this id."""
        found = next((prompt for prompt in self._waiting if prompt.uuid is not None and prompt.uuid == uuid), None)
        if found is not None:
            self._waiting.remove(found)
        return found

    def uuids(self) -> list[str]:
        """Return the ids of all that wait."""
        return [prompt.uuid for prompt in self._waiting if prompt.uuid]
