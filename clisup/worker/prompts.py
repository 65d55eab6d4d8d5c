"""Lines of stream-json on stdin, and the queue of user messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clisup.stream_json.lines import blocks_of
from clisup.worker import JsonObject

_ORDER = {"now": 0, "next": 1, "later": 2}


@dataclass(frozen=True)
class Prompt:
    """User message with blocks of the Anthropic API. `asked` may have `schema`, `sampling` and the caller's `tools`."""

    uuid: str | None
    content: list[JsonObject]
    priority: str = "next"
    asked: Mapping[str, Any] = field(default_factory=dict)


def read_prompt(frame: Mapping[str, Any]) -> Prompt:
    """Return a user message. Raises `BadInput` for another role than `user`."""
    uuid, priority, asked = frame.get("uuid"), frame.get("priority"), frame.get("asked")
    return Prompt(
        uuid if isinstance(uuid, str) else None,
        blocks_of(frame),
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
